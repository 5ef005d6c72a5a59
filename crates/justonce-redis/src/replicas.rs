//! Waits for replicas on separate connections: WAIT blocks every later command on its connection.
//!
//! WAIT covers what its own connection has written. So the connection first writes a mark: replicas
//! that have the mark have everything that the server wrote before it, on any connection. Steps
//! that arrive during a WAIT share the next mark.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use justonce_core::store::{BatchExecutor, BatchLimits, BatchQueue, Pending, Replies};
use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use redis::{Cmd, Value};

use crate::connection::{Connection, Connector, Target};
use crate::error::{CommandError, unexpected};
use crate::lock::lock;
use crate::requirements::Requirements;

/// The limit of concurrent WAITs. While no replica answers, another one is sent after each such
/// part of the timeout, so that no step waits much longer than the timeout.
const MAX_WAITING: u32 = 16;
/// The limit of steps that share a mark. They cost nothing.
const MAX_BATCH: usize = 4096;
/// A write that leaves nothing behind.
const MARK: &str = include_str!("../lua/mark.lua");

/// The replicas that must have a write before it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirm {
    pub(crate) replicas: u32,
    pub(crate) within: Duration,
}

/// A write that replicas have to confirm.
pub(crate) struct ReplicatedWrite {
    /// The server that took it.
    pub(crate) server: Arc<str>,
    /// A key in the bucket of its record.
    pub(crate) mark: Vec<u8>,
}

/// The writes that wait for the replicas of one server.
pub(crate) type Confirmations = BatchQueue<MarkExecutor>;

/// Writes marks and waits for them.
pub(crate) struct MarkExecutor {
    confirm: Confirm,
    idle: Arc<Mutex<Vec<Connector>>>,
    connector: Box<dyn Fn() -> Connector + Send + Sync>,
}

/// A connection in use. Its connector becomes idle again when it is dropped.
pub(crate) struct BorrowedConnection {
    connection: Connection,
    connector: Option<Connector>,
    idle: Arc<Mutex<Vec<Connector>>>,
}

impl BorrowedConnection {
    /// A connection to this server. It is remade if it leads to a former primary.
    async fn to(&mut self, server: &Arc<str>) -> StoreResult<&Connection> {
        if self.connection.server() != server
            && let Some(connector) = &self.connector
        {
            self.connection.discard();
            self.connection = connector.connection().await?;
        }
        if self.connection.server() == server {
            return Ok(&self.connection);
        }
        // It is another server, or the same one after a restart: what replicas have of its writes
        // does not cover earlier steps.
        let message = "the server that took the step is not the primary any more";
        Err(StoreError::not_applied(StoreErrorKind::Unavailable, message))
    }
}

impl Drop for BorrowedConnection {
    fn drop(&mut self) {
        lock(&self.idle).extend(self.connector.take());
    }
}

impl MarkExecutor {
    /// The queue for the server at a target.
    pub(crate) fn queue(
        confirm: Confirm,
        reply_timeout: Duration,
        requirements: Option<Arc<Requirements>>,
        target: impl Fn() -> Target + Send + Sync + 'static,
    ) -> Confirmations {
        let timeout = reply_timeout + confirm.within;
        let connector = Box::new(move || Connector::new(target(), timeout, requirements.clone()));
        let max_wait = (confirm.within / MAX_WAITING).max(Duration::from_millis(1));
        let max_in_flight = usize::try_from(MAX_WAITING).unwrap_or(1);
        let limits = BatchLimits { unbatched: 2, max_in_flight, max_batch: MAX_BATCH, max_wait };
        BatchQueue::new(Self { confirm, idle: Arc::default(), connector }, limits)
    }

    async fn confirm(
        &self,
        mut borrowed: BorrowedConnection,
        write: &ReplicatedWrite,
    ) -> StoreResult<Option<i64>> {
        let connection = borrowed.to(&write.server).await.map_err(|error| unconfirmed(&error))?;
        match self.mark(connection, &write.mark).await {
            Ok(replicas) => Ok(Some(replicas)),
            // The slot is being moved to another node.
            Err(CommandError::Ask(_) | CommandError::TryAgain(_) | CommandError::Moved) => Ok(None),
            Err(error) => {
                connection.discard();
                Err(unconfirmed(&error.into_error()))
            }
        }
    }

    /// Counts the replicas that have everything that the server wrote before.
    async fn mark(&self, connection: &Connection, mark: &[u8]) -> Result<i64, CommandError> {
        let mut both = redis::pipe();
        both.cmd("EVAL").arg(MARK).arg(1).arg(mark).add_command(self.confirm.wait());
        let mut last = None;
        for reply in connection.send_all(&both).await? {
            last = Some(reply.extract_error().map_err(CommandError::of)?);
        }
        match last {
            Some(Value::Int(replicas)) => Ok(replicas),
            _ => Err(CommandError::Final(unexpected("WAIT"))),
        }
    }
}

impl BatchExecutor for MarkExecutor {
    type Request = ReplicatedWrite;
    /// The number of replicas that have the write; `None` if no mark can be written now.
    type Reply = Option<i64>;
    type Connection = BorrowedConnection;

    /// A mark covers the writes of its own server only.
    fn fits(&self, batch: &[Pending<Self>], next: &ReplicatedWrite) -> bool {
        batch.first().is_none_or(|first| first.request.server == next.server)
    }

    async fn connect(&self) -> StoreResult<BorrowedConnection> {
        let connector = lock(&self.idle).pop().unwrap_or_else(|| (self.connector)());
        match connector.connection().await {
            Ok(connection) => {
                let (connector, idle) = (Some(connector), Arc::clone(&self.idle));
                Ok(BorrowedConnection { connection, connector, idle })
            }
            Err(error) => {
                lock(&self.idle).push(connector);
                Err(error)
            }
        }
    }

    async fn execute(
        &self,
        connection: StoreResult<BorrowedConnection>,
        batch: Vec<Pending<Self>>,
    ) -> Replies<Option<i64>> {
        let reply = match (connection, batch.first()) {
            (Ok(connection), Some(first)) => self.confirm(connection, &first.request).await,
            (Err(error), _) => Err(unconfirmed(&error)),
            (Ok(_), None) => return Vec::new(),
        };
        batch.into_iter().map(|pending| (pending.reply_to, reply.clone())).collect()
    }
}

impl Confirm {
    fn wait(self) -> Cmd {
        let mut wait = redis::cmd("WAIT");
        wait.arg(self.replicas).arg(u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX));
        wait
    }

    /// Waits on the connection that wrote, which blocks every later command on it.
    pub(crate) async fn wait_over(self, connection: &Connection) -> StoreResult<i64> {
        match connection.send(&self.wait()).await {
            Ok(Value::Int(replicas)) => Ok(replicas),
            Ok(_) => Err(unexpected("WAIT")),
            Err(error) => Err(unconfirmed(&error.into_error())),
        }
    }

    /// Whether this many replicas are enough.
    pub(crate) fn met_by(self, confirmed: i64) -> StoreResult<()> {
        let Self { replicas, within } = self;
        if confirmed >= i64::from(replicas) {
            return Ok(());
        }
        let message = format!(
            "the primary has the step, but only {confirmed} of {replicas} replicas confirmed it \
             within {within:?}: a failover may lose it"
        );
        Err(StoreError::maybe_applied(StoreErrorKind::Unavailable, message))
    }
}

/// The primary has the step; whether a replica has it is not known.
fn unconfirmed(error: &StoreError) -> StoreError {
    // A server that has become a replica ends a WAIT, and refuses new ones, with an error that has
    // no other meaning: the primary is another server now.
    let kind = match error.kind() {
        StoreErrorKind::Protocol => StoreErrorKind::Unavailable,
        kind => kind,
    };
    let message = format!("the replicas did not confirm the step: {error}");
    StoreError::maybe_applied(kind, message).because(error.clone())
}
