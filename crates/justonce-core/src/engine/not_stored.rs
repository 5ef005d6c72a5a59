//! Steps that no caller waits for, and that could not be stored.

use std::fmt;
use std::sync::Arc;

use crate::claim::Fence;
use crate::error::StoreError;
use crate::protocol::{Action, Lost, Step};
use crate::record_id::RecordId;

/// A step that the engine took in the background, because its caller had left, and that is not
/// stored. The lease lapses instead, and what the step said is lost.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NotStored<'a> {
    /// The record.
    pub id: RecordId,
    /// The fence of the claim.
    pub fence: Fence,
    /// The name of the step: `complete`, `fail`, `release`, `abandon` or `checkpoint`.
    pub step: &'static str,
    /// Why.
    pub why: NotStoredWhy<'a>,
}

/// Why a step is not stored.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum NotStoredWhy<'a> {
    /// The store failed until the time was over, or for good.
    Failed(&'a StoreError),
    /// The claim was lost before.
    Lost(Lost),
    /// The runtime on which it was tried has ended.
    Stopped,
}

/// Gets every step that no caller waits for and that could not be stored, for metrics and alerts.
/// The engine logs it too, as a warning with the target `justonce::engine`.
pub trait NotStoredObserver: Send + Sync + 'static {
    /// A step is not stored, and is not tried again.
    fn not_stored(&self, step: &NotStored<'_>);
}

/// Says that a step is not stored.
pub(super) fn report(
    observer: Option<&Arc<dyn NotStoredObserver>>,
    step: &Step,
    why: NotStoredWhy<'_>,
) {
    let fence = step.action.fence().unwrap_or(Fence::NONE);
    let event = NotStored { id: step.id, fence, step: step.action.name(), why };
    tracing::warn!(
        target: "justonce::engine",
        record = %event.id,
        fence = event.fence.get(),
        step = event.step,
        why = %event.why,
        "a step in the background is not stored: the lease lapses instead"
    );
    if let Some(observer) = observer {
        observer.not_stored(&event);
    }
}

/// Whether a write that changed nothing means that what it says is lost. A claim that is given up
/// or given back is gone either way.
pub(super) const fn is_loss(step: &Step, lost: Lost) -> bool {
    match step.action {
        Action::Complete(..) => true,
        // It may have freed the key before, in a try whose reply was lost.
        Action::Fail(..) => !matches!(lost, Lost::Gone),
        _ => false,
    }
}

impl fmt::Display for NotStoredWhy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Lost(lost) => write!(f, "the claim was lost: {lost:?}"),
            Self::Stopped => f.write_str("its runtime has ended"),
        }
    }
}
