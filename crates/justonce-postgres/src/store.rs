//! The store and its parts.

use std::fmt;
use std::sync::Arc;

use justonce_core::RecordId;
use justonce_core::store::{BatchQueue, DamageLog};

use crate::batch::Statements;
use crate::committed::Committed;
use crate::db::Db;
use crate::subscription::Subscription;

/// A store in PostgreSQL, for any number of processes.
///
/// ```no_run
/// use justonce_postgres::PostgresStore;
///
/// # async fn example() -> Result<(), justonce_core::StoreError> {
/// // The default.
/// let store = PostgresStore::open("postgres://shop@db.internal/shop").await?;
///
/// // Customised.
/// let store = PostgresStore::builder("postgres://shop@db.internal/shop")
///     .schema("payments_once")
///     .connections(32)
///     .migrate(false)
///     .open()
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct PostgresStore(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) db: Arc<Db>,
    pub(crate) subscription: Subscription,
    pub(crate) committed: Committed,
    pub(crate) claims: BatchQueue<Statements>,
    /// Claims under `rerun`, which do not wait for the disk, or for claims that do.
    pub(crate) reruns: BatchQueue<Statements>,
    pub(crate) completions: BatchQueue<Statements>,
    pub(crate) damage: DamageLog,
}

impl Inner {
    /// Logs a record that cannot be read, once.
    pub(crate) fn note_damage(&self, id: &RecordId, why: &dyn fmt::Display) {
        if self.damage.note(*id) {
            tracing::error!(record = %id, %why, "a record is damaged");
        }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("schema", &self.0.db.schema).finish_non_exhaustive()
    }
}
