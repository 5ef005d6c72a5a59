//! The port for the protocol itself.

use std::future::Future;

use crate::claim::Fence;
use crate::error::StoreResult;
use crate::protocol::{Answer, ClaimEnd, Step, Stored};
use crate::record_id::RecordId;

/// A store of records.
///
/// Every call is one atomic step at the store's own time and does just what
/// [`transition`](crate::transition) says. Dropping a call's future before it ends leaves the step
/// either applied or not, never half.
pub trait Records: Send + Sync + 'static {
    /// Takes one step of the protocol.
    ///
    /// # Errors
    ///
    /// Only for surprises; the error says whether the step may have been applied.
    fn apply(&self, step: &Step) -> impl Future<Output = StoreResult<Answer>> + Send;

    /// Reads a record with its timeline, as it is stored, whatever the time.
    ///
    /// # Errors
    ///
    /// If the store cannot be read or the record is damaged.
    fn get(&self, id: &RecordId) -> impl Future<Output = StoreResult<Option<Stored>>> + Send;

    /// Waits until the claim with this fence is no longer the record's running claim: it was
    /// settled, released, abandoned, held or taken over. It does not wait for the lease to lapse;
    /// that is a matter of time, and the caller knows the time left. It may return early.
    ///
    /// A store that knows what the claim ended with may return it: everyone who waits gets it with
    /// the signal, and need not ask again. It must be as durable then as an answer of
    /// [`apply`](Self::apply) is. Nothing means that the caller must ask.
    ///
    /// # Errors
    ///
    /// If the store cannot tell.
    fn settled(
        &self,
        id: &RecordId,
        fence: Fence,
    ) -> impl Future<Output = StoreResult<Option<ClaimEnd>>> + Send;
}
