//! Connections to PostgreSQL, and one statement on one of them.

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
    PATIENT_SESSION, PROMPT_SESSION, READS_SESSION, SESSION, STEPS_SESSION, Statements,
};

/// How often a statement that lost against another one is sent at most.
const TRIES: u32 = 5;

/// How many steps wait at once for records which somebody else has: those of others wait in turn.
const PATIENT_CONNECTIONS: usize = 4;
/// How many connections read at once: a page, a count, a record to look at.
const READ_CONNECTIONS: usize = 4;

/// What a statement is given.
pub(crate) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A database and everything that is needed to work with it.
pub(crate) struct Db {
    pub(crate) schema: Schema,
    pub(crate) sql: Statements,
    steps: Connections,
    /// For steps that wait for a record which somebody else has: no other step waits for them.
    patient: Connections,
    /// For what only reads, and may take long: no step waits for it.
    reads: Connections,
    /// For callers' transactions, which may last: the steps of the protocol must never wait for
    /// them.
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
        let steps = ours(connections, PROMPT_SESSION)?;
        let patient = ours(PATIENT_CONNECTIONS, PATIENT_SESSION)?;
        let reads = ours(READ_CONNECTIONS, READS_SESSION)?;
        let callers = Connections::for_callers(endpoint, transactions, SESSION)?;
        Ok(Self { schema, sql, steps, patient, reads, callers, clock })
    }

    /// The moment to pass to a statement: nothing, unless a test has brought a clock.
    pub(crate) fn now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| moment(clock.now()))
    }

    /// A connection for a step.
    pub(crate) async fn client(&self) -> StoreResult<Connection> {
        self.patient.give_up_idle();
        self.reads.give_up_idle();
        self.steps.get().await
    }

    /// A connection for what only reads. Where the server takes no more of them, one for steps.
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
        self.one_by(None, sql, params).await
    }

    /// Runs a statement that gives one row.
    pub(crate) async fn one_by(
        &self,
        way: Option<Connection>,
        sql: &str,
        params: Params<'_>,
    ) -> StoreResult<Row> {
        one_of(self.all_by(way, sql, params).await?)
    }

    /// Runs a statement that gives one row or none.
    pub(crate) async fn maybe_one_by(
        &self,
        way: Option<Connection>,
        sql: &str,
        params: Params<'_>,
    ) -> StoreResult<Option<Row>> {
        let mut rows = self.all_by(way, sql, params).await?;
        if rows.len() > 1 {
            return Err(rows_instead_of_one(rows.len()));
        }
        Ok(rows.pop())
    }

    /// Runs a statement that may write, and gives all its rows. Whoever has a connection already
    /// waits for nothing: neither for another one, nor for a record that somebody else has.
    pub(crate) async fn all_by(
        &self,
        way: Option<Connection>,
        sql: &str,
        params: Params<'_>,
    ) -> StoreResult<Vec<Row>> {
        match way {
            Some(client) => tried(client, sql, params).await,
            None => match tried(self.client().await?, sql, params).await {
                Err(error) if is_locked(&error) => self.all_patient(sql, params).await,
                done => done,
            },
        }
    }

    /// Runs a statement that gives one row, and waits for a record which somebody else has.
    pub(crate) async fn one_patient(&self, sql: &str, params: Params<'_>) -> StoreResult<Row> {
        one_of(self.all_patient(sql, params).await?)
    }

    /// Runs a statement that may write, and waits for a record which somebody else has.
    async fn all_patient(&self, sql: &str, params: Params<'_>) -> StoreResult<Vec<Row>> {
        // Too many wait already.
        let client = self.patient.get().await.map_err(|_| locked())?;
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
            // Whether or not it was sent: it changes nothing.
            store_error(error, Reached::Nothing)
        })
    }

    /// Runs a statement that only reads, and gives one row.
    pub(crate) async fn read_one(&self, sql: &str, params: Params<'_>) -> StoreResult<Row> {
        one_of(self.rows(sql, params).await?)
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// A statement that may write, sent again if it lost against another one.
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

/// What a statement gave, or how far it had come when it failed.
type Done = Result<Vec<Row>, (tokio_postgres::Error, Reached)>;

/// One statement. If nobody waits for it any more, it is cancelled.
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
    // Only behind the last row comes the word that it is committed.
    loop {
        let reached = if rows.is_empty() { Reached::Sent } else { Reached::Row };
        match sent.try_next().await.map_err(at(reached))? {
            Some(row) => rows.push(row),
            None => return Ok(rows),
        }
    }
}

fn one_of(mut rows: Vec<Row>) -> StoreResult<Row> {
    let count = rows.len();
    rows.pop().filter(|_| count == 1).ok_or_else(|| rows_instead_of_one(count))
}

fn rows_instead_of_one(count: usize) -> StoreError {
    let message = format!("PostgreSQL answered a step with {count} rows instead of one");
    StoreError::maybe_applied(StoreErrorKind::Protocol, message)
}
