//! The short history of a record, for operators.
//!
//! It lies beside the record, not in it: a refused write leaves a note here and changes nothing
//! there.

use std::sync::Arc;

use super::record::UnknownReason;
use crate::claim::{Fence, Owner, readable};
use crate::clock::Timestamp;

/// The most notes kept for one record. The first is kept for good, then the newest.
pub const MAX_NOTES: usize = 16;
/// The longest reason and the longest name in a note, in bytes.
pub const MAX_NOTE_TEXT_BYTES: usize = 256;

/// What happened to a record, oldest first, bounded by [`MAX_NOTES`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timeline {
    notes: Vec<Note>,
    dropped: u32,
}

/// One thing that happened to a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// When, by the store's clock.
    pub at: Timestamp,
    /// The fence it was about.
    pub fence: Fence,
    /// What.
    pub kind: NoteKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NoteKind {
    /// The first claim.
    Claimed(Owner),
    /// A further claim, after a lapsed lease or a failure.
    TakenOver(Owner),
    /// The owner saved a checkpoint of this name.
    Checkpointed(Arc<str>),
    /// The owner completed it.
    Completed,
    /// The owner failed; it may be tried again.
    FailedForNow,
    /// The owner failed for good.
    FailedForGood,
    /// The owner gave up without knowing the outcome; the next begin takes over.
    GivenUp(UnknownReason),
    /// The same, and what the owner saw.
    GivenUpBecause(UnknownReason, Why),
    /// It became unknown.
    Held(UnknownReason),
    /// The same, and what the owner saw.
    HeldBecause(UnknownReason, Why),
    /// A write with an old fence was refused.
    Refused(RefusedStep),
    /// The unknown outcome was resolved.
    Resolved(Resolver, HowResolved, Why),
    /// The owner gave it back: its attempt did nothing.
    Released,
}

impl NoteKind {
    /// That an operation became unknown.
    #[must_use]
    pub fn held(reason: UnknownReason, cause: Option<Why>) -> Self {
        match cause {
            None => Self::Held(reason),
            Some(cause) => Self::HeldBecause(reason, cause),
        }
    }

    /// That its owner gave an operation up.
    #[must_use]
    pub fn given_up(reason: UnknownReason, cause: Option<Why>) -> Self {
        match cause {
            None => Self::GivenUp(reason),
            Some(cause) => Self::GivenUpBecause(reason, cause),
        }
    }

    /// Why an operation became unknown, and what its owner saw, if this is the note of that.
    #[must_use]
    pub const fn unknown_because(&self) -> Option<(UnknownReason, Option<&Why>)> {
        match self {
            Self::Held(reason) => Some((*reason, None)),
            Self::HeldBecause(reason, cause) => Some((*reason, Some(cause))),
            _ => None,
        }
    }

    /// What happened, in one word of metrics, messages and the admin API.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Claimed(_) => "claimed",
            Self::TakenOver(_) => "taken_over",
            Self::Checkpointed(_) => "checkpointed",
            Self::Completed => "completed",
            Self::FailedForNow => "failed_for_now",
            Self::FailedForGood => "failed_for_good",
            Self::GivenUp(_) | Self::GivenUpBecause(..) => "given_up",
            Self::Held(_) | Self::HeldBecause(..) => "held",
            Self::Refused(_) => "refused",
            Self::Resolved(..) => "resolved",
            Self::Released => "released",
        }
    }
}

/// Which write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefusedStep {
    /// A complete.
    Complete,
    /// A fail.
    Fail,
    /// A release.
    Release,
    /// A renewal.
    Renew,
    /// A checkpoint.
    Checkpoint,
    /// An abandon.
    Abandon,
    /// A resolution.
    Resolve,
}

impl RefusedStep {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Complete,
        Self::Fail,
        Self::Release,
        Self::Renew,
        Self::Checkpoint,
        Self::Abandon,
        Self::Resolve,
    ];

    /// The name as it is kept and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Fail => "fail",
            Self::Release => "release",
            Self::Renew => "renew",
            Self::Checkpoint => "checkpoint",
            Self::Abandon => "abandon",
            Self::Resolve => "resolve",
        }
    }

    /// Reads a name back.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.as_str() == name)
    }
}

/// How an unknown outcome was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HowResolved {
    /// It took effect.
    Completed,
    /// It failed for good.
    Failed,
    /// It did not take effect; the next begin claims it.
    Released,
}

impl HowResolved {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Completed, Self::Failed, Self::Released];

    /// The name as it is kept and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Released => "released",
        }
    }

    /// Reads a name back.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|how| how.as_str() == name)
    }
}

/// Who resolved an unknown outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resolver {
    /// The downstream was asked, by the probe of this name.
    Probe(Arc<str>),
    /// A callback of the downstream.
    Callback(Arc<str>),
    /// A person decided.
    Operator(Arc<str>),
}

impl Resolver {
    /// A probe by its name.
    #[must_use]
    pub fn probe(name: &str) -> Self {
        Self::Probe(bounded(name))
    }

    /// A callback by its source.
    #[must_use]
    pub fn callback(name: &str) -> Self {
        Self::Callback(bounded(name))
    }

    /// An operator by name.
    #[must_use]
    pub fn operator(name: &str) -> Self {
        Self::Operator(bounded(name))
    }

    /// The kind of resolver, in metrics and messages.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Probe(_) => "probe",
            Self::Callback(_) => "callback",
            Self::Operator(_) => "operator",
        }
    }

    /// Who it is.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Probe(name) | Self::Callback(name) | Self::Operator(name) => name,
        }
    }
}

/// The reason given for a resolution, or what an owner saw that does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Why(Arc<str>);

impl Why {
    /// A reason, cut at [`MAX_NOTE_TEXT_BYTES`].
    #[must_use]
    pub fn new(reason: &str) -> Self {
        Self(bounded(reason))
    }

    /// The reason.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn bounded(text: &str) -> Arc<str> {
    Arc::from(readable(text, MAX_NOTE_TEXT_BYTES))
}

impl Timeline {
    /// Adds a note. When the timeline is full, the oldest note but the first makes room.
    pub fn push(&mut self, note: Note) {
        if self.notes.is_empty() {
            // Most records end with two notes: claimed and completed.
            self.notes.reserve_exact(2);
        }
        if self.notes.len() >= MAX_NOTES {
            self.notes.remove(1);
            self.dropped = self.dropped.saturating_add(1);
        }
        self.notes.push(note);
    }

    /// The notes, oldest first.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// How many notes had to make room.
    #[must_use]
    pub const fn dropped(&self) -> u32 {
        self.dropped
    }

    /// A timeline as a store kept it; surplus notes are dropped.
    #[must_use]
    pub fn from_parts(notes: impl IntoIterator<Item = Note>, dropped: u32) -> Self {
        let mut timeline = Self { notes: Vec::new(), dropped };
        for note in notes {
            timeline.push(note);
        }
        timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_note_and_the_newest_are_kept() {
        let mut timeline = Timeline::default();
        for n in 0..100 {
            timeline.push(Note {
                at: Timestamp::from_millis(n),
                fence: Fence::new(n),
                kind: NoteKind::Completed,
            });
        }
        let kept: Vec<u64> = timeline.notes().iter().map(|note| note.fence.get()).collect();
        assert_eq!(kept.len(), MAX_NOTES);
        assert_eq!((kept[0], kept[1], kept[15]), (0, 85, 99));
        assert_eq!(timeline.dropped(), 84);
        assert_eq!(Timeline::from_parts(timeline.notes().to_vec(), 84), timeline);
    }
}
