//! What a probe is asked, and what it may say.

use std::future::Future;

use super::report::ProbeEnd;
use crate::claim::Fence;
use crate::clock::Timestamp;
use crate::key::Key;
use crate::outcome::Outcome;
use crate::protocol::{Resolution, StateName, Why};
use crate::record_id::RecordId;
use crate::scope::Scope;
use crate::store::Summary;

/// An operation of which it is not known whether it took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// The name of its record.
    pub id: RecordId,
    /// Whose it is.
    pub scope: Scope,
    /// The caller's name for it.
    pub key: Key,
    /// The fence of its last claim.
    pub fence: Fence,
    /// How often it was claimed.
    pub attempt: u32,
    /// Since when it is unknown.
    pub since: Timestamp,
}

impl Unresolved {
    /// What a list says of an unknown operation; nothing of others.
    pub(super) fn of(summary: Summary) -> Option<Self> {
        if summary.state != StateName::Unknown {
            return None;
        }
        Some(Self {
            id: summary.id,
            scope: summary.scope?,
            key: summary.key?,
            fence: summary.fence,
            attempt: summary.attempt,
            since: summary.changed_at,
        })
    }
}

/// The downstream's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probed {
    /// It took effect; this is the reply.
    Happened(Outcome, Why),
    /// It failed for good; this is the reply.
    Failed(Outcome, Why),
    /// It did not take effect **and never will**: what may still be on its way is no such case.
    DidNotHappen(Why),
    /// Everything else. It is asked again later.
    AskAgain,
}

impl Probed {
    /// How it resolves the operation, if it does.
    pub(super) fn resolution(self) -> Option<(Resolution, Why)> {
        match self {
            Self::Happened(outcome, why) => Some((Resolution::Complete(outcome), why)),
            Self::Failed(outcome, why) => Some((Resolution::Fail(outcome), why)),
            Self::DidNotHappen(why) => Some((Resolution::Release, why)),
            Self::AskAgain => None,
        }
    }
}

/// Asks the downstream. Every `Fn(Unresolved) -> impl Future<Output = Probed>` is one.
///
/// ```
/// use justonce_core::engine::{Probed, Unresolved};
/// use justonce_core::{Outcome, Why};
///
/// # async fn find(key: &str) -> Option<String> { None }
/// let probe = async |about: Unresolved| match find(about.key.as_str()).await {
///     Some(receipt) => Probed::Happened(Outcome::bytes(receipt), Why::new("it is in the books")),
///     None => Probed::AskAgain,
/// };
/// ```
pub trait Probe: Send + Sync + 'static {
    /// Asks about one operation. It may be called more than once for the same one.
    fn ask(&self, about: Unresolved) -> impl Future<Output = Probed> + Send;

    /// Gets what became of it, to count or log it.
    fn ended(&self, about: &Unresolved, end: &ProbeEnd) {
        let _ = (about, end);
    }
}

impl<F, A> Probe for F
where
    F: Fn(Unresolved) -> A + Send + Sync + 'static,
    A: Future<Output = Probed> + Send,
{
    fn ask(&self, about: Unresolved) -> impl Future<Output = Probed> + Send {
        self(about)
    }
}
