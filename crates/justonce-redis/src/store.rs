//! The store: its parts, and running a script at the server of a record.

use std::fmt;
use std::sync::Arc;

use justonce_core::store::DamageLog;
use justonce_core::{Clock, RecordId, StoreResult};
use redis::{Cmd, ToRedisArgs, Value};

use crate::batch::Batches;
use crate::error::CommandError;
use crate::layout::{Key, Layout, bucket};
use crate::monitor::Monitor;
use crate::nodes::{Nodes, Reply};
use crate::replicas::{Confirm, ReplicatedWrite};
use crate::scripts::{self, Lua, Scripts};
use crate::subscription::Subscription;

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
/// // Customised: three sentinels, its own prefix, every write on one replica at least.
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
    /// `None` where steps are never batched.
    pub(crate) batches: Option<Batches>,
    pub(crate) subscription: Subscription,
    pub(crate) clock: Option<Box<dyn Clock>>,
    pub(crate) confirm: Option<Confirm>,
    pub(crate) monitor: Monitor,
    pub(crate) damage: DamageLog,
}

impl RedisStore {
    /// Logs a record that cannot be read, once.
    pub(crate) fn note_damage(&self, id: &RecordId, why: &dyn fmt::Display) {
        if self.damage.note(*id) {
            tracing::error!(record = %id, %why, "a record is damaged");
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.nodes.layout
    }

    /// The first argument of most scripts: empty for the server's time, a moment in tests.
    pub(crate) fn moment(&self) -> String {
        self.clock.as_ref().map(|clock| clock.now().as_millis().to_string()).unwrap_or_default()
    }

    /// Sends a command to the server of a bucket.
    pub(crate) async fn send(&self, bucket: u8, command: &Cmd) -> StoreResult<Value> {
        let reply = self.nodes.send(bucket, 0, command).await;
        Ok(reply.map_err(CommandError::into_error)?.value)
    }

    /// Runs a script at the server of a record.
    pub(crate) async fn run(
        &self,
        id: &RecordId,
        script: &Lua,
        keys: &[Key<'_>],
        arguments: &[&[u8]],
    ) -> StoreResult<Reply> {
        let [.., slot] = *id.as_bytes();
        scripts::run(&self.nodes, bucket(id), slot, script, keys, arguments).await
    }

    /// Waits until enough replicas have the write, without blocking other steps.
    pub(crate) async fn confirmed(&self, id: &RecordId, reply: &Reply) -> StoreResult<()> {
        let (Some(confirm), Some(confirmations)) = (self.confirm, reply.node.confirmations())
        else {
            return Ok(());
        };
        let mark = self.layout().mark(bucket(id)).to_redis_args().concat();
        let write = ReplicatedWrite { server: Arc::clone(reply.connection.server()), mark };
        let replicas = match confirmations.call(write).await {
            Ok(Some(replicas)) => Ok(replicas),
            Ok(None) => confirm.wait_over(&reply.connection).await,
            Err(error) => Err(error),
        };
        // Whatever failed, the primary may be elsewhere now.
        confirm.met_by(replicas.inspect_err(|_| reply.connection.discard())?)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("confirm", &self.confirm).finish_non_exhaustive()
    }
}
