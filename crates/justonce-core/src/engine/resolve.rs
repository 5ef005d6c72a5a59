//! Resolutions of unknown operations.

use super::begin::unexpected;
use super::builder::Engine;
use super::held_claim::Settlement;
use crate::claim::Fence;
use crate::error::StoreResult;
use crate::protocol::{Action, Answer, Resolve, Step};
use crate::record_id::RecordId;

impl Engine {
    /// Says what became of an unknown operation. The fence is the one that the unknown answer
    /// named: a resolution never meets a later claim by accident.
    ///
    /// # Errors
    ///
    /// If the store fails. The call may be repeated.
    pub async fn resolve(
        &self,
        id: RecordId,
        fence: Fence,
        resolve: Resolve,
    ) -> StoreResult<Settlement> {
        // A lapse that is not written down yet is written down, and so counted, before it is
        // resolved.
        self.inner.store.apply(&Step::new(id, Action::Sweep)).await?;
        let step = Step::new(id, Action::Resolve(fence, Box::new(resolve)));
        match self.inner.store.apply(&step).await? {
            Answer::Applied => Ok(Settlement::Stored),
            Answer::Lost(lost) => Ok(Settlement::Lost(lost)),
            other => Err(unexpected(&step.action, &other)),
        }
    }
}
