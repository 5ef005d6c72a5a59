//! Opening a Redis store.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::{Clock, StoreError, StoreErrorKind, StoreResult};
use redis::Value;

use crate::address::{Address, checked_prefix};
use crate::layout::Layout;
use crate::node::NodeSettings;
use crate::nodes::Nodes;
use crate::scripts::Scripts;
use crate::store::{Confirm, RedisStore};
use crate::subscription::Subscription;
use crate::tls::Trust;
use crate::together::Together;
use crate::waiters::Waiters;

/// The prefix of all keys unless told otherwise.
const DEFAULT_PREFIX: &str = "justonce";
/// How long a reply may take unless told otherwise: far more than Redis needs, and far less than
/// a lease.
const DEFAULT_REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// How many connections there are to each server. All that is ready goes out by one at once, all
/// callers of a connection then wait for the server together, and it waits for them next: with two,
/// one half works while the other half waits.
const LANES: usize = 2;
/// How many connections share the waiting for replicas: WAIT holds up those behind it.
const WAIT_LANES: usize = 16;
/// The oldest version that will do.
const LEAST_VERSION: (u32, u32) = (7, 0);

/// The settings of a [`RedisStore`].
#[must_use = "a builder does nothing until `open`"]
pub struct RedisStoreBuilder {
    url: String,
    ca_file: Option<PathBuf>,
    prefix: String,
    reply_timeout: Duration,
    confirm: Option<Confirm>,
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
    /// one more round trip for each write. Default: 0, replicas follow when they can.
    pub const fn wait_replicas(mut self, replicas: u32, within: Duration) -> Self {
        self.confirm = if replicas == 0 { None } else { Some(Confirm { replicas, within }) };
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
        let wait = self.confirm.map(|confirm| confirm.within).unwrap_or_default();
        let lanes = if self.confirm.is_some() { WAIT_LANES } else { LANES };
        let settings = NodeSettings { reply_timeout: self.reply_timeout + wait, lanes };
        let nodes = Arc::new(Nodes::new(address, Layout::new(&self.prefix), settings));
        for info in nodes.send_each(&redis::cmd("INFO")).await? {
            check(&Info::of(&info), nodes.is_cluster())?;
        }
        nodes.connect().await?;
        let waiters = Waiters::default();
        let scripts = Arc::new(Scripts::new());
        // A script in a cluster touches one bucket only; WAIT is for one caller's writes; and a
        // clock for tests says a moment for each step.
        let alone = nodes.is_cluster() || self.confirm.is_some() || self.clock.is_some();
        Ok(RedisStore {
            together: (!alone).then(|| Together::new(&nodes, &scripts)),
            subscription: Subscription::start(Arc::clone(&nodes), waiters.clone()),
            nodes,
            scripts,
            waiters,
            clock: self.clock,
            confirm: self.confirm,
        })
    }
}

/// What a server says about itself.
struct Info(String);

impl Info {
    fn of(value: &Value) -> Self {
        Self(match value {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::VerbatimString { text, .. } => text.clone(),
            Value::SimpleString(text) => text.clone(),
            _ => String::new(),
        })
    }

    fn get(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(field, _)| *field == name).map(|(_, value)| value.trim())
    }
}

/// Refuses servers that cannot keep the promise, and warns of what may be meant.
fn check(info: &Info, as_cluster: bool) -> StoreResult<()> {
    let refuse = |message| Err(StoreError::not_applied(StoreErrorKind::Stopped, message));
    // Valkey says which Redis it is like.
    let version = info.get("redis_version").unwrap_or("unknown");
    if version_of(version).is_none_or(|version| version < LEAST_VERSION) {
        let (major, minor) = LEAST_VERSION;
        return refuse(format!(
            "the server is Redis {version}; {major}.{minor} or later is needed"
        ));
    }
    // Valkey has another name for it.
    let mode = info.get("redis_mode").or_else(|| info.get("server_mode"));
    if mode == Some("cluster") && !as_cluster {
        return refuse("the server is part of a cluster: use redis-cluster://…".to_owned());
    }
    match info.get("maxmemory_policy") {
        Some("noeviction") => {}
        Some(policy) => {
            return refuse(format!(
                "the server may evict records (maxmemory-policy {policy}), and an evicted record \
                 runs again: set maxmemory-policy noeviction"
            ));
        }
        None => tracing::warn!("the server does not say its maxmemory-policy: set noeviction"),
    }
    if info.get("aof_enabled") != Some("1") {
        tracing::warn!(
            "the server keeps no append-only file: a crash forgets the records since the last \
             snapshot; set appendonly yes"
        );
    }
    Ok(())
}

fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str, as_cluster: bool) -> Result<(), String> {
        check(&Info(text.to_owned()), as_cluster).map_err(|error| error.to_string())
    }

    #[test]
    fn servers_that_cannot_keep_the_promise_are_refused() {
        let good = "redis_version:7.0.15\r\nredis_mode:standalone\r\nmaxmemory_policy:noeviction";
        assert_eq!(checked(good, false), Ok(()));
        let valkey = good.replace("7.0.15", "7.2.4").replace("redis_mode", "server_mode");
        assert_eq!(checked(&valkey, false), Ok(()), "Valkey");
        let old = checked(&good.replace("7.0.15", "6.2.7"), false).unwrap_err();
        assert!(old.contains("6.2.7") && old.contains("7.0"), "{old}");
        let evicts = checked(&good.replace("noeviction", "allkeys-lru"), false).unwrap_err();
        assert!(evicts.contains("allkeys-lru"), "{evicts}");
        let cluster = good.replace("standalone", "cluster");
        for cluster in [cluster, valkey.replace("standalone", "cluster")] {
            assert!(checked(&cluster, false).unwrap_err().contains("redis-cluster://"));
            assert_eq!(checked(&cluster, true), Ok(()));
        }
        assert!(checked("", false).unwrap_err().contains("unknown"));
    }
}
