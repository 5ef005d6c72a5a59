//! Opening a Redis store.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::address::{Address, checked_prefix};
use crate::checks::{Checks, Servers};
use crate::confirm::Confirm;
use crate::fitness::{Fitness, Info};
use crate::layout::Layout;
use crate::node::NodeSettings;
use crate::nodes::Nodes;
use crate::scripts::Scripts;
use crate::store::RedisStore;
use crate::subscription::Subscription;
use crate::tls::Trust;
use crate::together::Together;
use crate::waiters::Waiters;
use justonce_core::store::DamageLog;
use justonce_core::{Clock, StoreError, StoreErrorKind, StoreResult};

/// The prefix of all keys unless told otherwise.
const DEFAULT_PREFIX: &str = "justonce";
/// How long a reply may take unless told otherwise: far more than Redis needs, and far less than
/// a lease.
const DEFAULT_REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// How many connections there are to each server. All that is ready goes out by one at once, all
/// callers of a connection then wait for the server together, and it waits for them next: with two,
/// one half works while the other half waits.
const LANES: usize = 2;
/// How often the servers are asked whether they can keep the promise, unless told otherwise: INFO
/// costs a server some ten microseconds.
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

impl RedisStoreBuilder {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            ca_file: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            reply_timeout: DEFAULT_REPLY_TIMEOUT,
            confirm: None,
            check_every: DEFAULT_CHECK_EVERY,
            clock: None,
        }
    }

    /// The file (PEM) of the authorities that may vouch for the servers, for addresses that begin
    /// with `rediss`. Nobody else may then. Default: those that the machine trusts.
    #[cfg(feature = "tls")]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// What all keys begin with: stores with different prefixes know nothing of each other.
    /// Default: `justonce`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a reply may take before the step counts as timed out. Default: 2 s.
    pub const fn reply_timeout(mut self, timeout: Duration) -> Self {
        self.reply_timeout = timeout;
        self
    }

    /// Answers a write only once so many replicas have it. If they do not confirm it in time, the
    /// step fails, and the error says that it may have been applied: the primary has it. It costs
    /// one more round trip for each write, shared with others who wait. Nobody else waits with
    /// them: duplicates are answered at once. Default: 0, replicas follow when they can.
    pub const fn wait_replicas(mut self, replicas: u32, within: Duration) -> Self {
        self.confirm = if replicas == 0 { None } else { Some(Confirm { replicas, within }) };
        self
    }

    /// How often every server is asked, with INFO, whether it may evict records; replicas that may
    /// take over too. From the moment when this is noticed until it is corrected, every step is
    /// refused. Between two checks an evicted record is not noticed. Default: 1 s. Every new
    /// connection is checked besides.
    pub const fn check_every(mut self, pause: Duration) -> Self {
        self.check_every = pause;
        self
    }

    /// Another clock, for tests. Default: the clock of the server.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Connects, and checks that the servers can keep the promise.
    ///
    /// # Errors
    ///
    /// If the address or the file of authorities is wrong, no server can be reached, or one of them
    /// is older than 7.0 or may evict records.
    pub async fn open(self) -> StoreResult<RedisStore> {
        checked_prefix(&self.prefix)?;
        let trust = Trust::of(self.ca_file.as_deref())?;
        let address = Address::parse(&self.url, &trust)?;
        let is_cluster = matches!(address, Address::Cluster { .. });
        let fitness = Arc::new(Fitness::new(is_cluster));
        let servers = Arc::new(Servers::new(address.clone(), Arc::clone(&fitness)));
        let settings = NodeSettings {
            reply_timeout: self.reply_timeout,
            lanes: LANES,
            fitness: Some(Arc::clone(&fitness)),
            confirm: self.confirm,
        };
        let nodes = Arc::new(Nodes::new(address, Layout::new(&self.prefix), settings));
        // Replicas too: they may take over.
        servers.check().await;
        let connected = async {
            nodes.connect().await?;
            nodes.send_each(&redis::cmd("INFO")).await
        };
        let infos = connected.await.map_err(|error| match fitness.reason() {
            // Whoever starts must correct it first.
            Some(reason) => StoreError::not_applied(StoreErrorKind::Stopped, reason),
            None => error,
        })?;
        infos.iter().for_each(|info| warn_of(&Info::of(info)));
        let waiters = Waiters::default();
        let scripts = Arc::new(Scripts::new());
        // A script in a cluster touches one bucket only; WAIT is for one caller's writes; and a
        // clock for tests says a moment for each step.
        let alone = is_cluster || self.confirm.is_some() || self.clock.is_some();
        Ok(RedisStore {
            together: (!alone).then(|| Together::new(&nodes, &scripts)),
            subscription: Subscription::start(Arc::clone(&nodes), waiters.clone()),
            nodes,
            scripts,
            waiters,
            clock: self.clock,
            confirm: self.confirm,
            checks: Checks::start(servers, self.check_every),
            damage: DamageLog::default(),
        })
    }
}

/// Warns of what may be meant.
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
