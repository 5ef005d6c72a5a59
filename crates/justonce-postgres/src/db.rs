//! Connections to PostgreSQL, and one statement on one of them.

use std::pin::pin;
use std::time::Duration;

use deadpool_postgres::{
    Client, ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod,
    Runtime,
};
use futures_util::TryStreamExt;
use justonce_core::{Clock, StoreError, StoreErrorKind, StoreResult};
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, NoTls, Row};

use crate::error::{Reached, lost_a_conflict, no_connection, spoils_connection, store_error};
use crate::numbers::moment;
use crate::schema::Schema;
use crate::statements::{SESSION, Statements};

/// How long a step waits for a free connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(5);
/// How long making a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A silent connection is asked after this long whether it is alive, and then so often.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// The pause between such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How many go unanswered before a connection counts as dead.
const KEEPALIVE_RETRIES: u32 = 3;
/// How long sent data may stay unacknowledged before a connection counts as dead.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// How often a statement that lost against another one is sent at most.
const TRIES: u32 = 5;

/// What a statement is given.
pub(crate) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A database and everything that is needed to work with it.
pub(crate) struct Db {
    pub(crate) schema: Schema,
    pub(crate) sql: Statements,
    pool: Pool,
    /// For callers' transactions, which may last: the steps of the protocol must never wait for
    /// them.
    callers: Pool,
    clock: Option<Box<dyn Clock>>,
}

impl Db {
    pub(crate) fn new(
        config: &Config,
        schema: Schema,
        connections: usize,
        transactions: usize,
        clock: Option<Box<dyn Clock>>,
    ) -> StoreResult<Self> {
        let sql = Statements::new(&schema);
        let (steps, callers) = (pool(config, connections)?, pool(config, transactions)?);
        Ok(Self { schema, sql, pool: steps, callers, clock })
    }
    /// The moment to pass to a statement: nothing, unless a test has brought a clock.
    pub(crate) fn now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| moment(clock.now()))
    }

    /// A connection of our own.
    pub(crate) async fn client(&self) -> StoreResult<Client> {
        self.pool.get().await.map_err(no_connection)
    }

    /// A connection for a caller's transaction.
    pub(crate) async fn callers_client(&self) -> StoreResult<Client> {
        self.callers.get().await.map_err(no_connection)
    }

    /// Runs a statement that gives one row.
    pub(crate) async fn one(&self, sql: &str, params: Params<'_>) -> StoreResult<Row> {
        let mut tries = 1;
        loop {
            let client = self.client().await?;
            match one(&client, sql, params).await {
                Ok(row) => return Ok(row),
                Err(Failed::Driver(error, reached)) => {
                    if spoils_connection(&error) {
                        drop(Object::take(client));
                    }
                    if tries >= TRIES || !lost_a_conflict(&error) {
                        return Err(store_error(error, reached));
                    }
                    tries += 1;
                }
                Err(Failed::Rows(count)) => return Err(rows_instead_of_one(count)),
            }
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
                    drop(Object::take(client));
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

/// Connections that are kept for more than one statement.
fn pool(config: &Config, size: usize) -> StoreResult<Pool> {
    let recycling_method = RecyclingMethod::Fast;
    let manager = Manager::from_config(config.clone(), NoTls, ManagerConfig { recycling_method });
    let session = Hook::async_fn(|client: &mut ClientWrapper, _| {
        Box::pin(async move { client.batch_execute(SESSION).await.map_err(HookError::Backend) })
    });
    let pool = Pool::builder(manager)
        .max_size(size.max(1))
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(CONNECTION_WAIT))
        .create_timeout(Some(CONNECT_TIMEOUT))
        .post_create(session)
        .build();
    pool.map_err(|error| {
        let message = format!("no connections can be kept: {error}");
        StoreError::not_applied(StoreErrorKind::Unavailable, message)
    })
}

/// The settings that every connection of ours has, unless the address says otherwise.
pub(crate) fn configured(url: &str) -> Result<Config, tokio_postgres::Error> {
    let mut config: Config = url.parse()?;
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_application_name().is_none() {
        config.application_name("justonce");
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNACKNOWLEDGED);
    }
    config.keepalives_idle(KEEPALIVE_IDLE);
    config.keepalives_interval(KEEPALIVE_INTERVAL);
    config.keepalives_retries(KEEPALIVE_RETRIES);
    if config.get_hosts().len() > 1 {
        // Of several servers only the one that takes writes can be asked.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    Ok(config)
}

enum Failed {
    Driver(tokio_postgres::Error, Reached),
    Rows(usize),
}

/// One statement, and how far it had come if it failed.
async fn one(client: &Client, sql: &str, params: Params<'_>) -> Result<Row, Failed> {
    let at = |reached| move |error| Failed::Driver(error, reached);
    let statement = client.prepare_cached(sql).await.map_err(at(Reached::Nothing))?;
    let params = params.iter().map(|param| *param as &dyn ToSql);
    let sent = client.query_raw(&statement, params).await.map_err(at(Reached::Sent))?;
    let mut rows = pin!(sent);
    let first = rows.try_next().await.map_err(at(Reached::Sent))?;
    // Only behind the last row comes the word that it is committed.
    let mut count = usize::from(first.is_some());
    while rows.try_next().await.map_err(at(Reached::Row))?.is_some() {
        count += 1;
    }
    first.filter(|_| count == 1).ok_or(Failed::Rows(count))
}

fn rows_instead_of_one(count: usize) -> StoreError {
    let message = format!("PostgreSQL answered a step with {count} rows instead of one");
    StoreError::maybe_applied(StoreErrorKind::Protocol, message)
}
