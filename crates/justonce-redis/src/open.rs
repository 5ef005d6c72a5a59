//! Opening a Redis store.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::address::{Address, checked_prefix};
use crate::batch::Batches;
use crate::layout::Layout;
use crate::monitor::{Monitor, Servers};
use crate::node::NodeSettings;
use crate::nodes::Nodes;
use crate::replicas::Confirm;
use crate::requirements::{Info, Requirements};
use crate::scripts::Scripts;
use crate::store::RedisStore;
use crate::subscription::Subscription;
use crate::tls::Roots;
use justonce_core::store::DamageLog;
use justonce_core::{Clock, StoreError, StoreErrorKind, StoreResult};

/// The default prefix of all keys.
const DEFAULT_PREFIX: &str = "justonce";
/// The default time limit for a reply: far more than Redis needs, far less than a lease.
const DEFAULT_REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// The connections to each server. The callers of one connection wait for the server together, and
/// it then waits for them: with two connections, one half works while the other waits.
const CONNECTIONS: usize = 2;
/// The default pause between two checks of all servers: INFO costs a server some ten microseconds.
const DEFAULT_CHECK_EVERY: Duration = Duration::from_secs(1);

/// The settings of a [`RedisStore`].
#[must_use = "a builder does nothing until `open`"]
pub struct RedisStoreBuilder {
    url: String,
    ca_file: Option<PathBuf>,
    prefix: String,
    reply_timeout: Duration,
    confirm: Option<Confirm>,
    check_every: Duration,
    clock: Option<Box<dyn Clock>>,
}

impl RedisStore {
    /// Starts with an address: `redis://host:port`, `redis-sentinel://host:port,host:port/name` or
    /// `redis-cluster://host:port,host:port`.
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder {
            url: url.into(),
            ca_file: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            reply_timeout: DEFAULT_REPLY_TIMEOUT,
            confirm: None,
            check_every: DEFAULT_CHECK_EVERY,
            clock: None,
        }
    }
}

impl RedisStoreBuilder {
    /// The only trust roots for TLS, a PEM file, for addresses that begin with `rediss`. Default:
    /// the roots of the machine.
    #[cfg(feature = "tls")]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// The prefix of all keys. Stores with different prefixes are independent. Default:
    /// `justonce`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a reply may take before the step counts as timed out. Default: 2 s.
    pub const fn reply_timeout(mut self, timeout: Duration) -> Self {
        self.reply_timeout = timeout;
        self
    }

    /// Answers a write only after this many replicas have it. If they do not confirm it in time,
    /// the step fails as *may have been applied*: the primary has it. Each write costs one more
    /// round trip, which concurrent writes share; duplicates do not wait. Default: 0, replication
    /// is asynchronous.
    pub const fn wait_replicas(mut self, replicas: u32, within: Duration) -> Self {
        self.confirm = if replicas == 0 { None } else { Some(Confirm { replicas, within }) };
        self
    }

    /// The pause between two checks whether a server, or a replica that may take over, can evict
    /// records (INFO). While one can, every step is refused. An eviction between two checks is not
    /// noticed. Default: 1 s. Every new connection is checked as well.
    pub const fn check_every(mut self, pause: Duration) -> Self {
        self.check_every = pause;
        self
    }

    /// Another clock, for tests. Default: the clock of the server.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Connects, and checks the servers.
    ///
    /// # Errors
    ///
    /// If the address or the file of trust roots is wrong, no server can be reached, or one of
    /// them is older than 7.0 or may evict records.
    pub async fn open(self) -> StoreResult<RedisStore> {
        checked_prefix(&self.prefix)?;
        let roots = Roots::new(self.ca_file.as_deref())?;
        let address = Address::parse(&self.url, &roots)?;
        let is_cluster = matches!(address, Address::Cluster { .. });
        let requirements = Arc::new(Requirements::new(is_cluster));
        let servers = Arc::new(Servers::new(address.clone(), Arc::clone(&requirements)));
        let settings = NodeSettings {
            reply_timeout: self.reply_timeout,
            connections: CONNECTIONS,
            requirements: Some(Arc::clone(&requirements)),
            confirm: self.confirm,
        };
        let nodes = Arc::new(Nodes::new(address, Layout::new(&self.prefix), settings));
        // This includes replicas, which may take over.
        servers.check().await;
        let connected = async {
            nodes.connect().await?;
            nodes.send_each(&redis::cmd("INFO")).await
        };
        let infos = connected.await.map_err(|error| match requirements.violation() {
            // An operator must correct the server first.
            Some(reason) => StoreError::not_applied(StoreErrorKind::Stopped, reason),
            None => error,
        })?;
        infos.iter().for_each(|info| warn_of(&Info::of(info)));
        let scripts = Arc::new(Scripts::new());
        // A script in a cluster touches one bucket; WAIT confirms single writes; a clock for tests
        // gives each step its own moment.
        let unbatched = is_cluster || self.confirm.is_some() || self.clock.is_some();
        Ok(RedisStore {
            batches: (!unbatched).then(|| Batches::new(&nodes, &scripts)),
            subscription: Subscription::start(Arc::clone(&nodes)),
            nodes,
            scripts,
            clock: self.clock,
            confirm: self.confirm,
            monitor: Monitor::start(servers, self.check_every),
            damage: DamageLog::default(),
        })
    }
}

/// Warns of settings that may be intended.
fn warn_of(info: &Info) {
    if info.get("aof_enabled") != Some("1") {
        tracing::warn!(
            "the server keeps no append-only file: a crash forgets the records since the last \
             snapshot; set appendonly yes"
        );
    }
}

impl fmt::Debug for RedisStoreBuilder {
    /// Without the address, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("confirm", &self.confirm)
            .finish_non_exhaustive()
    }
}
