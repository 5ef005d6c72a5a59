//! A Redis store: sending scripts.

use std::fmt;
use std::sync::Arc;

use justonce_core::store::DamageLog;
use justonce_core::{Clock, RecordId, StoreResult};
use redis::{Cmd, ToRedisArgs, Value};

use crate::checks::Checks;
use crate::confirm::{Confirm, Wrote};
use crate::error::Trouble;
use crate::layout::{Key, Layout, bucket};
use crate::link::Live;
use crate::nodes::{Nodes, Sent};
use crate::open::RedisStoreBuilder;
use crate::scripts::{Lua, Scripts};
use crate::subscription::Subscription;
use crate::together::Together;
use crate::waiters::Waiters;

/// A store in Redis.
///
/// Cheap to share behind an `Arc`; all callers share a few connections to each server. Dropping it
/// closes them.
///
/// ```no_run
/// use justonce_redis::RedisStore;
/// use std::time::Duration;
///
/// # async fn open() -> Result<(), justonce_core::StoreError> {
/// // The default.
/// let store = RedisStore::builder("redis://127.0.0.1:6379").open().await?;
///
/// // Customised: three sentinels, a prefix of our own, every write on one replica at least.
/// let store = RedisStore::builder("redis-sentinel://s1:26379,s2:26379,s3:26379/main")
///     .prefix("payments")
///     .wait_replicas(1, Duration::from_secs(1))
///     .open()
///     .await?;
/// # Ok(())
/// # }
/// ```
pub struct RedisStore {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) scripts: Arc<Scripts>,
    /// Nothing where steps always go alone.
    pub(crate) together: Option<Together>,
    pub(crate) waiters: Waiters,
    pub(crate) subscription: Subscription,
    pub(crate) clock: Option<Box<dyn Clock>>,
    pub(crate) confirm: Option<Confirm>,
    pub(crate) checks: Checks,
    pub(crate) damage: DamageLog,
}

impl RedisStore {
    /// Starts with an address: `redis://host:port`, `redis-sentinel://host:port,host:port/name` or
    /// `redis-cluster://host:port,host:port`.
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url.into())
    }

    /// A record could not be read.
    pub(crate) fn note_damage(&self, id: &RecordId, why: &dyn fmt::Display) {
        if self.damage.note(*id) {
            tracing::error!(record = %id, %why, "a record is damaged");
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.nodes.layout
    }

    /// What every script gets first: nothing, for the time is the server's, except in tests.
    pub(crate) fn moment(&self) -> String {
        self.clock.as_ref().map(|clock| clock.now().as_millis().to_string()).unwrap_or_default()
    }

    /// Runs a script at the server of a record.
    pub(crate) async fn run(
        &self,
        id: &RecordId,
        script: &Lua,
        keys: &[Key<'_>],
        arguments: &[&[u8]],
    ) -> StoreResult<Sent> {
        let [.., lane] = *id.as_bytes();
        self.run_at(bucket(id), lane, script, keys, arguments).await
    }

    /// Runs a script at the server of a bucket.
    pub(crate) async fn run_at(
        &self,
        bucket: u8,
        lane: u8,
        script: &Lua,
        keys: &[Key<'_>],
        arguments: &[&[u8]],
    ) -> StoreResult<Sent> {
        run_script(&self.nodes, bucket, lane, script, keys, arguments).await
    }

    /// Waits until enough replicas have what was written, without holding anybody up.
    pub(crate) async fn confirmed(&self, id: &RecordId, sent: &Sent) -> StoreResult<()> {
        let (Some(confirm), Some(confirmations)) = (self.confirm, sent.node.confirmations()) else {
            return Ok(());
        };
        let mark = self.layout().mark(bucket(id)).to_redis_args().concat();
        let wrote = Wrote { server: sent.live.shared_server(), mark };
        let have = match confirmations.apply(wrote).await {
            Ok(Some(have)) => Ok(have),
            Ok(None) => confirm.wait_by(&sent.live).await,
            Err(error) => Err(error),
        };
        // Whatever went wrong, the primary may be elsewhere now.
        let have = have.inspect_err(|_| sent.live.give_up())?;
        confirm.met_by(have)
    }
}

/// Runs a script at the server of a bucket. A server that has forgotten it gets it again.
pub(crate) async fn run_script(
    nodes: &Nodes,
    bucket: u8,
    lane: u8,
    script: &Lua,
    keys: &[Key<'_>],
    arguments: &[&[u8]],
) -> StoreResult<Sent> {
    let known = command("EVALSHA", &script.hash, keys, arguments);
    match nodes.send(bucket, lane, &known).await {
        Err(Trouble::NoScript) => {
            let whole = command("EVAL", script.text, keys, arguments);
            nodes.send(bucket, lane, &whole).await
        }
        other => other,
    }
    .map_err(Trouble::into_error)
}

/// Runs a script by one connection. A server that has forgotten it gets it again.
pub(crate) async fn run_by(
    nodes: &Nodes,
    live: &Live,
    script: &Lua,
    keys: &[Key<'_>],
    arguments: &[&[u8]],
) -> Result<Value, Trouble> {
    let known = command("EVALSHA", &script.hash, keys, arguments);
    match nodes.send_by(live, &known).await {
        Err(Trouble::NoScript) => {
            nodes.send_by(live, &command("EVAL", script.text, keys, arguments)).await
        }
        other => other,
    }
}

fn command(name: &str, script: &str, keys: &[Key<'_>], arguments: &[&[u8]]) -> Cmd {
    let sizes = keys.iter().map(Key::len).chain(arguments.iter().map(|argument| argument.len()));
    let (count, size) = (keys.len() + arguments.len(), sizes.sum::<usize>());
    // The name, the script and the number of keys come first.
    let mut command = Cmd::with_capacity(3 + count, size + name.len() + script.len() + 8);
    command.arg(name);
    command.arg(script).arg(keys.len());
    for key in keys {
        command.arg(key);
    }
    for argument in arguments {
        command.arg(*argument);
    }
    command
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}
