//! What a handler knows and can do while it runs.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use super::builder::Inner;
use super::held_claim::{HeldClaim, Settlement};
use super::renewal::Active;
use crate::claim::{Checkpoint, CheckpointError, Fence};
use crate::error::StoreError;
use crate::key::Key;
use crate::operation::Operation;
use crate::protocol::{Lost, Why};

/// What a handler knows and can do while it runs.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
    active: Arc<Active>,
    operation: Operation,
    attempt: u32,
    checkpoint: Option<Checkpoint>,
}

impl Context {
    pub(super) fn new(inner: &Arc<Inner>, operation: &Operation, claim: &HeldClaim) -> Self {
        Self {
            inner: Arc::clone(inner),
            active: Arc::clone(claim.active()),
            operation: operation.clone(),
            attempt: claim.attempt(),
            checkpoint: claim.checkpoint().cloned(),
        }
    }

    /// The operation.
    #[must_use]
    pub const fn operation(&self) -> &Operation {
        &self.operation
    }

    /// The key of a step of this operation, to send downstream.
    #[must_use]
    pub fn child_key(&self, step: &str) -> Key {
        self.operation.child_key(step)
    }

    /// The fence, to hand to systems that check it.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.active.fence
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The last checkpoint of the attempt before, under `resume`.
    #[must_use]
    pub const fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref()
    }

    /// Saves a checkpoint. Once this returns, a takeover under `resume` starts from it.
    ///
    /// # Errors
    ///
    /// If the point is too large, the claim was lost, or the store fails.
    pub async fn save(&self, name: &str, data: impl Into<Bytes>) -> Result<(), SaveError> {
        let checkpoint = self.point(name, data).map_err(SaveError::Refused)?;
        match self.active.save(&self.inner, checkpoint).await.map_err(SaveError::Store)? {
            Settlement::Stored => Ok(()),
            Settlement::Lost(lost) => Err(SaveError::Lost(lost)),
        }
    }

    /// A checkpoint with its place in the order of this claim's points, for code that saves it
    /// by other means: in a transaction, with other writes. A point that was made earlier and
    /// comes later changes nothing.
    ///
    /// # Errors
    ///
    /// If the point is too large.
    pub fn point(&self, name: &str, data: impl Into<Bytes>) -> Result<Checkpoint, CheckpointError> {
        Ok(self.active.numbered(Checkpoint::new(name, data)?))
    }

    /// Says what this handler sees, for the case that it ends without knowing whether the operation
    /// took effect: the cause is kept in the timeline, for operators, and cut at
    /// [`MAX_NOTE_TEXT_BYTES`](crate::MAX_NOTE_TEXT_BYTES). The last one counts.
    pub fn explain(&self, cause: &str) {
        self.active.saw(Why::new(cause));
    }

    /// The same as a value that outlives the context and holds little.
    #[must_use]
    pub fn explainer(&self) -> Explainer {
        Explainer(Arc::clone(&self.active))
    }

    /// Waits until another owner has taken over, for handlers that hand work to others and want
    /// to stop it. The engine drops the handler by itself at that moment.
    pub async fn lost(&self) {
        self.active.lost().await;
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("id", &self.active.id)
            .field("fence", &self.active.fence)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// Says what a handler sees: see [`Context::explain`].
#[derive(Clone)]
pub struct Explainer(pub(super) Arc<Active>);

impl Explainer {
    /// As [`Context::explain`].
    pub fn explain(&self, cause: &str) {
        self.0.saw(Why::new(cause));
    }

    /// The last cause that was given.
    #[must_use]
    pub fn explained(&self) -> Option<String> {
        self.0.cause().map(|why| why.as_str().to_owned())
    }
}

impl fmt::Debug for Explainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Explainer").field(&self.0.id).finish()
    }
}

/// Why a checkpoint was not saved.
#[derive(Clone, Debug, Error)]
pub enum SaveError {
    /// It breaks a limit.
    #[error("{0}")]
    Refused(#[source] CheckpointError),
    /// The claim was lost.
    #[error("the claim was lost: another owner took over")]
    Lost(Lost),
    /// The store failed.
    #[error("the checkpoint may not be saved: {0}")]
    Store(#[source] StoreError),
}
