//! One connection to one server, made when it is needed and made anew when it is lost.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use redis::aio::{MultiplexedConnection, SendError};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, Pipeline, PushInfo,
    PushKind, RedisError, Value,
};
use tokio::time::timeout;

use crate::error::{Trouble, unreachable};
use crate::fitness::{Fitness, Info};
use crate::sentinel::Sentinels;
use crate::tls::advice_on_silence;

/// How long making a connection may take, with all that belongs to it.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How many steps may be on their way to the connection's task before callers queue.
const PIPELINE_STEPS: usize = 1024;

/// To whom a link connects.
pub(crate) enum Target {
    /// Always the same server.
    Server(Box<ConnectionInfo>),
    /// The primary that the sentinels name.
    Primary(Arc<Sentinels>),
}

/// A connection to one server that comes back by itself.
pub(crate) struct Link {
    target: Target,
    reply_timeout: Duration,
    /// Where every server must be fit, this is told of each to which a connection is made.
    fitness: Option<Arc<Fitness>>,
    live: Mutex<Option<Live>>,
    /// Why the last attempt to connect failed, for those who queued behind it.
    refusal: Mutex<Option<StoreError>>,
    attempts: AtomicU64,
    connecting: tokio::sync::Mutex<()>,
}

/// A connection as long as it lives. Cheap to clone: every step takes one.
#[derive(Clone)]
pub(crate) struct Live(Arc<Connected>);

struct Connected {
    connection: MultiplexedConnection,
    gone: Arc<AtomicBool>,
    /// The life of the server; empty where nobody asked.
    server: Arc<str>,
}

impl Connected {
    /// What a new connection is asked before it is used; asking changes nothing.
    async fn ask(&self, command: &Cmd) -> StoreResult<Value> {
        let reply = self.connection.clone().send_packed_command(command).await;
        reply.and_then(Value::extract_error).map_err(|error| {
            let error = Trouble::of(error).into_error();
            StoreError::not_applied(error.kind(), format!("the server does not answer: {error}"))
        })
    }
}

impl Link {
    pub(crate) fn new(
        target: Target,
        reply_timeout: Duration,
        fitness: Option<Arc<Fitness>>,
    ) -> Self {
        Self {
            target,
            reply_timeout,
            fitness,
            live: Mutex::new(None),
            refusal: Mutex::new(None),
            attempts: AtomicU64::new(0),
            connecting: tokio::sync::Mutex::new(()),
        }
    }

    /// The connection, made now if there is none. Nothing is sent if this fails.
    pub(crate) async fn live(&self) -> StoreResult<Live> {
        match self.current() {
            Some(live) => Ok(live),
            // Rare, and large: kept out of the future of every step.
            None => Box::pin(self.renewed()).await,
        }
    }

    async fn renewed(&self) -> StoreResult<Live> {
        let attempts = self.attempts.load(Ordering::Acquire);
        let _turn = self.connecting.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        if self.attempts.load(Ordering::Acquire) != attempts
            && let Some(refusal) = lock(&self.refusal).clone()
        {
            // Somebody tried while we queued. One attempt at a time is enough for all.
            return Err(refusal);
        }
        let connected = self.connect().await;
        self.attempts.fetch_add(1, Ordering::AcqRel);
        *lock(&self.refusal) = connected.as_ref().err().cloned();
        let live = connected?;
        *lock(&self.live) = Some(live.clone());
        Ok(live)
    }

    fn current(&self) -> Option<Live> {
        lock(&self.live).clone().filter(|live| !live.0.gone.load(Ordering::Acquire))
    }

    /// Gives up the connection, if there is one: the next step makes another.
    pub(crate) fn drop_live(&self) {
        *lock(&self.live) = None;
    }

    /// Where the server is now.
    pub(crate) async fn info(&self) -> StoreResult<ConnectionInfo> {
        match &self.target {
            Target::Server(info) => Ok((**info).clone()),
            Target::Primary(sentinels) => sentinels.primary().await,
        }
    }

    async fn connect(&self) -> StoreResult<Live> {
        let info = self.info().await?;
        let mut connected = self.connect_to(&info).await?;
        if let Target::Primary(_) = self.target {
            ensure_primary(&connected).await?;
        }
        if let Some(fitness) = &self.fitness {
            let place = info.addr().to_string();
            let reply = connected.ask(&redis::cmd("INFO")).await?;
            let info = Info::of(&reply);
            fitness.judge(&place, &info)?;
            connected.server = info.get("run_id").unwrap_or_default().into();
        }
        Ok(Live(Arc::new(connected)))
    }

    async fn connect_to(&self, info: &ConnectionInfo) -> StoreResult<Connected> {
        let what = info.addr().to_string();
        let client =
            Client::open(info.clone()).map_err(|error| unreachable(&what, info.addr(), error))?;
        let gone = Arc::new(AtomicBool::new(false));
        let lost = Arc::clone(&gone);
        let tell = move |push: PushInfo| -> Result<(), SendError> {
            if push.kind == PushKind::Disconnection {
                lost.store(true, Ordering::Release);
            }
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(self.reply_timeout))
            .set_pipeline_buffer_size(PIPELINE_STEPS)
            .set_push_sender(tell);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(connection)) => Ok(Connected { connection, gone, server: Arc::default() }),
            Ok(Err(error)) => Err(unreachable(&what, info.addr(), error)),
            Err(_) => Err(silent(&what, info.addr())),
        }
    }
}

impl Live {
    /// Sends one command.
    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value, Trouble> {
        let mut connection = self.0.connection.clone();
        let reply = connection.send_packed_command(command).await;
        self.judged(reply.and_then(Value::extract_error))
    }

    /// Sends some commands at once, and gives the reply to each.
    pub(crate) async fn send_all(&self, commands: &Pipeline) -> Result<Vec<Value>, Trouble> {
        let mut connection = self.0.connection.clone();
        let count = commands.len();
        self.judged(connection.send_packed_commands(commands, 0, count).await)
    }

    /// The life of the server, which no other server has, and this one not again after a restart.
    pub(crate) fn server(&self) -> &str {
        &self.0.server
    }

    /// The same, to keep.
    pub(crate) fn shared_server(&self) -> Arc<str> {
        Arc::clone(&self.0.server)
    }

    /// The next step makes another connection.
    pub(crate) fn give_up(&self) {
        self.0.gone.store(true, Ordering::Release);
    }

    fn judged<T>(&self, reply: Result<T, RedisError>) -> Result<T, Trouble> {
        reply.map_err(|error| {
            let trouble = Trouble::of(error);
            if matches!(trouble, Trouble::Broken(_) | Trouble::Demoted(_)) {
                self.give_up();
            }
            trouble
        })
    }
}

/// A sentinel may still name a server that has just become a replica.
async fn ensure_primary(connected: &Connected) -> StoreResult<()> {
    let role = connected.ask(&redis::cmd("ROLE")).await?;
    let name = match role {
        Value::Array(parts) => parts.into_iter().next(),
        _ => None,
    };
    if matches!(name, Some(Value::BulkString(name)) if name == b"master") {
        return Ok(());
    }
    let message = "the server that the sentinels name is not a primary yet";
    Err(StoreError::not_applied(StoreErrorKind::Unavailable, message))
}

/// A server that accepts a connection and then says nothing.
pub(crate) fn silent(what: &str, at: &ConnectionAddr) -> StoreError {
    let advice = advice_on_silence(at);
    let message = format!("cannot reach {what}: no answer within {CONNECT_TIMEOUT:?}{advice}");
    StoreError::not_applied(StoreErrorKind::Unavailable, message)
}

/// A panic elsewhere does not matter: these hold single values.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}
