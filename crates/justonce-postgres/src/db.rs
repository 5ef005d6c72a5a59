//! Connections to PostgreSQL, and one statement on one of them.

use std::pin::pin;

use deadpool_postgres::Client;
use futures_util::TryStreamExt;
use justonce_core::{Clock, StoreError, StoreErrorKind, StoreResult};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::connections::{Connection, Connections};
use crate::endpoint::Endpoint;
use crate::error::{Reached, lost_a_conflict, spoils_connection, store_error};
use crate::numbers::moment;
use crate::schema::Schema;
use crate::statements::{SESSION, STEPS_SESSION, Statements};

/// How often a statement that lost against another one is sent at most.
const TRIES: u32 = 5;

/// What a statement is given.
pub(crate) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A database and everything that is needed to work with it.
pub(crate) struct Db {
    pub(crate) schema: Schema,
    pub(crate) sql: Statements,
    steps: Connections,
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
        let steps = Connections::new(endpoint, connections, &[SESSION, STEPS_SESSION])?;
        let callers = Connections::new(endpoint, transactions, &[SESSION])?;
        Ok(Self { schema, sql, steps, callers, clock })
    }
    /// The moment to pass to a statement: nothing, unless a test has brought a clock.
    pub(crate) fn now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| moment(clock.now()))
    }

    /// A connection of our own.
    pub(crate) async fn client(&self) -> StoreResult<Connection> {
        self.steps.get().await
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
        let row = self.maybe_one_by(way, sql, params).await?;
        row.ok_or_else(|| rows_instead_of_one(0))
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
    /// waits for nothing.
    pub(crate) async fn all_by(
        &self,
        way: Option<Connection>,
        sql: &str,
        params: Params<'_>,
    ) -> StoreResult<Vec<Row>> {
        let client = match way {
            Some(client) => client,
            None => self.client().await?,
        };
        let mut tries = 1;
        loop {
            let (error, reached) = match all(&client, sql, params).await {
                Ok(rows) => return Ok(rows),
                Err(failed) => failed,
            };
            if spoils_connection(&error) {
                client.end();
                return Err(store_error(error, reached));
            }
            if tries >= TRIES || !lost_a_conflict(&error) {
                return Err(store_error(error, reached));
            }
            tries += 1;
        }
    }

    /// Runs a statement that only reads.
    pub(crate) async fn rows(&self, sql: &str, params: Params<'_>) -> StoreResult<Vec<Row>> {
        let client = self.client().await?;
        let read = async {
            let statement = client.prepare_cached(sql).await?;
            client.query(&statement, params).await
        };
        match read.await {
            Ok(rows) => Ok(rows),
            Err(error) => {
                if spoils_connection(&error) {
                    client.end();
                }
                // Whether or not it was sent: it changes nothing.
                Err(store_error(error, Reached::Nothing))
            }
        }
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// One statement, and how far it had come if it failed.
async fn all(
    client: &Client,
    sql: &str,
    params: Params<'_>,
) -> Result<Vec<Row>, (tokio_postgres::Error, Reached)> {
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

fn rows_instead_of_one(count: usize) -> StoreError {
    let message = format!("PostgreSQL answered a step with {count} rows instead of one");
    StoreError::maybe_applied(StoreErrorKind::Protocol, message)
}
