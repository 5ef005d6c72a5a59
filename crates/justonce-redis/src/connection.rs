//! Connections to one server, made when needed and remade when lost.
//!
//! A connection is served by the runtime that made it, and used on that runtime only: another one
//! may be blocked, or end, while the connection is in use. The engine renews leases on a runtime of
//! its own for the same reason.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use justonce_core::store::PerRuntime;
use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use redis::aio::{MultiplexedConnection, SendError};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, Pipeline, PushInfo, PushKind, RedisError,
    Value,
};
use tokio::time::timeout;

use crate::error::{CONNECT_TIMEOUT, CommandError, silent, unreachable};
use crate::lock::lock;
use crate::requirements::{Info, Requirements};
use crate::sentinel::Sentinels;

/// The steps queued for the connection's task before callers wait.
const PIPELINE_STEPS: usize = 1024;

/// The server that a connector connects to.
pub(crate) enum Target {
    /// Always the same server.
    Server(Box<ConnectionInfo>),
    /// The primary that the sentinels name.
    Primary(Arc<Sentinels>),
}

/// Keeps one connection to a server for each runtime.
pub(crate) struct Connector {
    target: Target,
    reply_timeout: Duration,
    /// Checked with every new connection, where servers have to meet them.
    requirements: Option<Arc<Requirements>>,
    kept: PerRuntime<Kept>,
}

/// The connection of one runtime.
#[derive(Default)]
struct Kept {
    current: Mutex<Option<Connection>>,
    /// Why the last attempt failed, for callers that queued behind it.
    last_error: Mutex<Option<StoreError>>,
    attempts: AtomicU64,
    connecting: tokio::sync::Mutex<()>,
}

/// An open connection. Cheap to clone: every step takes one.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Connected>);

struct Connected {
    connection: MultiplexedConnection,
    gone: Arc<AtomicBool>,
    /// The `run_id` of the server; empty where it was not queried.
    server: Arc<str>,
}

impl Connected {
    /// Queries a new connection before it is used. This changes nothing on the server.
    async fn query(&self, command: &Cmd) -> StoreResult<Value> {
        let reply = self.connection.clone().send_packed_command(command).await;
        reply.and_then(Value::extract_error).map_err(|error| {
            let error = CommandError::of(error).into_error();
            StoreError::not_applied(error.kind(), format!("the server does not answer: {error}"))
        })
    }
}

impl Connector {
    pub(crate) fn new(
        target: Target,
        reply_timeout: Duration,
        requirements: Option<Arc<Requirements>>,
    ) -> Self {
        Self { target, reply_timeout, requirements, kept: PerRuntime::new() }
    }

    /// The connection of the current runtime, made now if there is none. If this fails, nothing
    /// was sent.
    pub(crate) async fn connection(&self) -> StoreResult<Connection> {
        let kept = self.kept.get(Kept::default);
        match kept.current() {
            Some(connection) => Ok(connection),
            // Rare, and large: kept out of the future of every step.
            None => Box::pin(self.reconnect(&kept)).await,
        }
    }

    async fn reconnect(&self, kept: &Kept) -> StoreResult<Connection> {
        let attempts = kept.attempts.load(Ordering::Acquire);
        let _turn = kept.connecting.lock().await;
        if let Some(connection) = kept.current() {
            return Ok(connection);
        }
        if kept.attempts.load(Ordering::Acquire) != attempts
            && let Some(error) = lock(&kept.last_error).clone()
        {
            // One attempt is enough for all callers that queued.
            return Err(error);
        }
        let connected = self.connect().await;
        kept.attempts.fetch_add(1, Ordering::AcqRel);
        *lock(&kept.last_error) = connected.as_ref().err().cloned();
        let connection = connected?;
        *lock(&kept.current) = Some(connection.clone());
        Ok(connection)
    }

    /// Drops the connections: the next step makes another.
    pub(crate) fn disconnect(&self) {
        for kept in self.kept.all() {
            *lock(&kept.current) = None;
        }
    }

    /// Where the server is now.
    pub(crate) async fn info(&self) -> StoreResult<ConnectionInfo> {
        match &self.target {
            Target::Server(info) => Ok((**info).clone()),
            Target::Primary(sentinels) => sentinels.primary().await,
        }
    }

    async fn connect(&self) -> StoreResult<Connection> {
        let info = self.info().await?;
        let mut connected = self.connect_to(&info).await?;
        if let Target::Primary(_) = self.target {
            ensure_primary(&connected).await?;
        }
        if let Some(requirements) = &self.requirements {
            let reply = connected.query(&redis::cmd("INFO")).await?;
            let server = Info::of(&reply);
            requirements.check(&info.addr().to_string(), &server)?;
            connected.server = server.get("run_id").unwrap_or_default().into();
        }
        Ok(Connection(Arc::new(connected)))
    }

    async fn connect_to(&self, info: &ConnectionInfo) -> StoreResult<Connected> {
        let what = info.addr().to_string();
        let client =
            Client::open(info.clone()).map_err(|error| unreachable(&what, info.addr(), error))?;
        let gone = Arc::new(AtomicBool::new(false));
        let lost = Arc::clone(&gone);
        let on_push = move |push: PushInfo| -> Result<(), SendError> {
            if push.kind == PushKind::Disconnection {
                lost.store(true, Ordering::Release);
            }
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(self.reply_timeout))
            .set_pipeline_buffer_size(PIPELINE_STEPS)
            .set_push_sender(on_push);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(connection)) => Ok(Connected { connection, gone, server: Arc::default() }),
            Ok(Err(error)) => Err(unreachable(&what, info.addr(), error)),
            Err(_) => Err(silent(&what, info.addr())),
        }
    }
}

impl Kept {
    fn current(&self) -> Option<Connection> {
        lock(&self.current).clone().filter(|connection| !connection.0.gone.load(Ordering::Acquire))
    }
}

impl Connection {
    /// Sends one command.
    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value, CommandError> {
        let reply = self.0.connection.clone().send_packed_command(command).await;
        self.checked(reply.and_then(Value::extract_error))
    }

    /// Sends several commands at once. Gives the reply to each.
    pub(crate) async fn send_all(&self, commands: &Pipeline) -> Result<Vec<Value>, CommandError> {
        let mut connection = self.0.connection.clone();
        self.checked(connection.send_packed_commands(commands, 0, commands.len()).await)
    }

    /// The `run_id` of the server. It differs between servers, and changes with every restart.
    pub(crate) fn server(&self) -> &Arc<str> {
        &self.0.server
    }

    /// The next step makes another connection.
    pub(crate) fn discard(&self) {
        self.0.gone.store(true, Ordering::Release);
    }

    fn checked<T>(&self, reply: Result<T, RedisError>) -> Result<T, CommandError> {
        reply.map_err(CommandError::of).inspect_err(|error| {
            if matches!(error, CommandError::Broken(_) | CommandError::Demoted(_)) {
                self.discard();
            }
        })
    }
}

/// A sentinel may still name a server that has just become a replica.
async fn ensure_primary(connected: &Connected) -> StoreResult<()> {
    if let Value::Array(role) = connected.query(&redis::cmd("ROLE")).await?
        && matches!(role.first(), Some(Value::BulkString(name)) if name == b"master")
    {
        return Ok(());
    }
    let message = "the server that the sentinels name is not a primary yet";
    Err(StoreError::not_applied(StoreErrorKind::Unavailable, message))
}
