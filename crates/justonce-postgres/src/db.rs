//! Statements on connections to PostgreSQL.

use std::pin::pin;
use std::sync::Arc;

use deadpool_postgres::Client;
use futures_util::TryStreamExt;
use justonce_core::{Clock, StoreError, StoreErrorKind, StoreResult};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::connections::{CancelOnDrop, Connection, Connections};
use crate::endpoint::Endpoint;
use crate::error::{
    Reached, is_full, is_locked, locked, lost_a_conflict, spoils_connection, store_error,
};
use crate::numbers::moment;
use crate::schema::Schema;
use crate::statements::{
    LONG_LOCKS_SESSION, READS_SESSION, SESSION, SHORT_LOCKS_SESSION, STEPS_SESSION, Statements,
};

/// The limit of tries of a statement that lost a conflict.
const TRIES: u32 = 5;

/// The limit of steps that wait for locked records at once.
const WAITING_CONNECTIONS: usize = 4;
/// The limit of reads at once: pages, counts, single records.
const READ_CONNECTIONS: usize = 4;

/// The parameters of a statement.
pub(crate) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The connections to a database, and the statements for it.
pub(crate) struct Db {
    pub(crate) schema: Schema,
    pub(crate) sql: Statements,
    steps: Connections,
    /// For steps that wait for locked records, so that other steps do not wait for them.
    waiting: Connections,
    /// For reads, which may take long, so that steps do not wait for them.
    reads: Connections,
    /// For callers' transactions, which may take long, so that steps do not wait for them.
    callers: Connections,
    clock: Option<Box<dyn Clock>>,
}

impl Db {
    pub(crate) fn new(
        endpoint: &Endpoint,
        schema: Schema,
        connections: usize,
        transactions: usize,
        clock: Option<Box<dyn Clock>>,
    ) -> StoreResult<Self> {
        let sql = Statements::new(&schema);
        let ours = |most, last| Connections::new(endpoint, most, &[SESSION, STEPS_SESSION, last]);
        let steps = ours(connections, SHORT_LOCKS_SESSION)?;
        let waiting = ours(WAITING_CONNECTIONS, LONG_LOCKS_SESSION)?;
        let reads = ours(READ_CONNECTIONS, READS_SESSION)?;
        let callers = Connections::for_callers(endpoint, transactions, SESSION)?;
        Ok(Self { schema, sql, steps, waiting, reads, callers, clock })
    }

    /// The time for a statement: `None` for the server's, a moment in tests.
    pub(crate) fn now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| moment(clock.now()))
    }

    /// A connection for a step.
    pub(crate) async fn client(&self) -> StoreResult<Connection> {
        self.waiting.close_idle();
        self.reads.close_idle();
        self.steps.get().await
    }

    /// A connection for reads. If the server takes no more connections, one for steps.
    async fn read_client(&self) -> StoreResult<Connection> {
        match self.reads.get().await {
            Err(error) if is_full(&error) => self.client().await,
            got => got,
        }
    }

    /// A connection for a caller's transaction.
    pub(crate) async fn callers_client(&self) -> StoreResult<Connection> {
        self.callers.get().await
    }

    /// Runs a statement that gives one row.
    pub(crate) async fn one(&self, sql: &str, params: Params<'_>) -> StoreResult<Row> {
        one_of(self.all_by(None, sql, params).await?)
    }

    /// Runs a statement that may write, and gives all its rows. On a given connection it does not
    /// wait for a locked record.
    pub(crate) async fn all_by(
        &self,
        connection: Option<Connection>,
        sql: &str,
        params: Params<'_>,
    ) -> StoreResult<Vec<Row>> {
        match connection {
            Some(client) => tried(client, sql, params).await,
            None => match tried(self.client().await?, sql, params).await {
                Err(error) if is_locked(&error) => self.all_waiting(sql, params).await,
                done => done,
            },
        }
    }

    /// Runs a statement that gives one row, and waits for a locked record.
    pub(crate) async fn one_waiting(&self, sql: &str, params: Params<'_>) -> StoreResult<Row> {
        one_of(self.all_waiting(sql, params).await?)
    }

    /// Runs a statement that may write, and waits for a locked record.
    async fn all_waiting(&self, sql: &str, params: Params<'_>) -> StoreResult<Vec<Row>> {
        // Too many steps wait already.
        let client = self.waiting.get().await.map_err(|_| locked())?;
        tried(client, sql, params).await
    }

    /// Runs a statement that only reads.
    pub(crate) async fn rows(&self, sql: &str, params: Params<'_>) -> StoreResult<Vec<Row>> {
        let client = self.read_client().await?;
        let (read, client) = once(client, sql, params).await;
        read.map_err(|(error, _)| {
            if spoils_connection(&error)
                && let Some(client) = client
            {
                client.end();
            }
            // Even if it was sent, it changed nothing.
            store_error(error, Reached::Nothing)
        })
    }

    /// Runs a statement that only reads, and gives one row.
    pub(crate) async fn read_one(&self, sql: &str, params: Params<'_>) -> StoreResult<Row> {
        one_of(self.rows(sql, params).await?)
    }
}

/// A statement that may write. It is sent again if it lost a conflict.
async fn tried(mut client: Connection, sql: &str, params: Params<'_>) -> StoreResult<Vec<Row>> {
    let mut tries = 1;
    loop {
        let (done, left) = once(client, sql, params).await;
        let (error, reached) = match done {
            Ok(rows) => return Ok(rows),
            Err(failed) => failed,
        };
        let Some(left) = left else { return Err(store_error(error, reached)) };
        if spoils_connection(&error) {
            left.end();
            return Err(store_error(error, reached));
        }
        if tries >= TRIES || !lost_a_conflict(&error) {
            return Err(store_error(error, reached));
        }
        client = left;
        tries += 1;
    }
}

/// The rows, or the error and how far the statement had come.
type Done = Result<Vec<Row>, (tokio_postgres::Error, Reached)>;

/// One statement. It is cancelled if its caller drops it.
async fn once(client: Connection, sql: &str, params: Params<'_>) -> (Done, Option<Connection>) {
    let mut guard = CancelOnDrop::default();
    let client = guard.watch(client);
    let done = all(&client, sql, params).await;
    guard.disarm();
    (done, Arc::into_inner(client))
}

/// One statement, and how far it had come if it failed.
async fn all(client: &Client, sql: &str, params: Params<'_>) -> Done {
    let at = |reached| move |error| (error, reached);
    let statement = client.prepare_cached(sql).await.map_err(at(Reached::Nothing))?;
    let params = params.iter().map(|param| *param as &dyn ToSql);
    let sent = client.query_raw(&statement, params).await.map_err(at(Reached::Sent))?;
    let mut sent = pin!(sent);
    let mut rows = Vec::new();
    // The end, after the last row, confirms the commit.
    loop {
        let reached = if rows.is_empty() { Reached::Sent } else { Reached::Row };
        match sent.try_next().await.map_err(at(reached))? {
            Some(row) => rows.push(row),
            None => return Ok(rows),
        }
    }
}

/// The only row.
pub(crate) fn one_of(mut rows: Vec<Row>) -> StoreResult<Row> {
    let count = rows.len();
    rows.pop().filter(|_| count == 1).ok_or_else(|| {
        let message = format!("PostgreSQL answered a step with {count} rows instead of one");
        StoreError::maybe_applied(StoreErrorKind::Protocol, message)
    })
}
