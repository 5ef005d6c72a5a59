//! What a store must do with a step, and the few shapes in which the rules say it.

use std::sync::Arc;

use super::record::{Entry, InProgress, Record, State, Stored, Subject};
use super::step::{Action, Answer, Claimed, Existing, Lost};
use super::timeline::{Note, NoteKind, RefusedStep, Timeline};
use crate::claim::Fence;
use crate::clock::Timestamp;

/// What a store must do with a step: change the entry, add the note, give the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What to do with the entry.
    pub change: Change,
    /// What to tell the caller.
    pub answer: Answer,
    /// What to add to the timeline. A removed entry takes its timeline along.
    pub note: Option<Note>,
    /// Whether the change must be on disk before the caller hears the answer. Where it need not
    /// be, a crash that forgets the change breaks no guarantee.
    pub durable: bool,
}

/// What to do with an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Keep,
    /// Store this.
    Put(Entry),
    /// Forget it.
    Remove,
}

impl Decision {
    /// What the store keeps once the decision is carried out, and the answer.
    #[must_use]
    pub fn carry_out(self, before: Option<Stored>) -> (Option<Stored>, Answer) {
        if let Some(mut stored) = before {
            let (kept, answer) = self.carry_out_in(&mut stored);
            return (kept.then_some(stored), answer);
        }
        let after = match self.change {
            Change::Put(entry) => {
                let mut stored = Stored { entry, timeline: Timeline::default() };
                stored.note(self.note);
                Some(stored)
            }
            Change::Keep | Change::Remove => None,
        };
        (after, self.answer)
    }

    /// The same where the entry lies: whether the store still keeps it, and the answer.
    #[must_use]
    pub fn carry_out_in(self, stored: &mut Stored) -> (bool, Answer) {
        match self.change {
            Change::Remove => return (false, self.answer),
            Change::Keep => {}
            Change::Put(entry) => {
                let anew = matches!(&self.note, Some(Note { kind: NoteKind::Claimed(_), .. }))
                    || matches!(entry, Entry::Tombstone(_));
                if anew {
                    stored.timeline = Timeline::default();
                }
                stored.entry = entry;
            }
        }
        stored.note(self.note);
        (true, self.answer)
    }
}

impl Stored {
    fn note(&mut self, note: Option<Note>) {
        if let Some(note) = note {
            self.timeline.push(note);
        }
    }
}

/// Whether a change ends the running claim of an entry, so that those who wait for it must be
/// woken. A renewal does not, an abandon does.
#[must_use]
pub fn ends_claim(before: &Entry, after: Option<&Entry>) -> bool {
    let lease = |entry: &Entry| match entry.record().map(|record| &record.state) {
        Some(State::InProgress(claim)) => Some(claim.lease_until),
        _ => None,
    };
    let Some(lease_before) = lease(before) else {
        return false;
    };
    match after {
        Some(after) if after.fence() == before.fence() => {
            lease(after).is_none_or(|lease_after| lease_after < lease_before)
        }
        _ => true,
    }
}

/// Whether an entry is the running claim with this fence.
#[must_use]
pub fn is_running(entry: &Entry, fence: Fence, now: Timestamp) -> bool {
    match entry.record().map(|record| &record.state) {
        Some(State::InProgress(claim)) => entry.fence() == fence && claim.is_alive(now),
        _ => false,
    }
}

/// A claim, old or new.
pub(crate) fn granted(
    subject: Arc<Subject>,
    fence: Fence,
    attempt: u32,
    claim: InProgress,
    durable: bool,
    note: NoteKind,
) -> Decision {
    let now = claim.claimed_at;
    let answer = Answer::Claimed(Claimed {
        fence,
        attempt,
        checkpoint: claim.checkpoint.clone(),
        lease: claim.policy.lease,
    });
    let state = State::InProgress(claim);
    let record = Record { subject, fence, attempt, changed_at: now, state };
    Decision {
        change: Change::Put(Entry::Record(record)),
        answer,
        note: Some(Note { at: now, fence, kind: note }),
        durable,
    }
}

/// The same record in another state.
pub(crate) fn put(
    record: &Record,
    state: State,
    now: Timestamp,
    note: Option<NoteKind>,
    durable: bool,
) -> Decision {
    let record = Record {
        subject: Arc::clone(&record.subject),
        fence: record.fence,
        attempt: record.attempt,
        changed_at: now,
        state,
    };
    let note = note.map(|kind| Note { at: now, fence: record.fence, kind });
    Decision { change: Change::Put(Entry::Record(record)), answer: Answer::Applied, note, durable }
}

/// The record is gone.
pub(crate) const fn remove(answer: Answer) -> Decision {
    Decision { change: Change::Remove, answer, note: None, durable: true }
}

/// Nothing changes.
pub(crate) const fn keep(answer: Answer) -> Decision {
    Decision { change: Change::Keep, answer, note: None, durable: false }
}

/// Nothing changes, and this is what became of the operation.
pub(crate) const fn existing(what: Existing) -> Decision {
    keep(Answer::Existing(what))
}

/// Changes nothing, and leaves a note for the operator.
pub(crate) fn refuse(action: &Action, fence: Fence, lost: Lost, now: Timestamp) -> Decision {
    let step = match action {
        Action::Complete(..) => Some(RefusedStep::Complete),
        Action::Fail(..) => Some(RefusedStep::Fail),
        Action::Release(_) => Some(RefusedStep::Release),
        Action::Renew(_) => Some(RefusedStep::Renew),
        Action::Checkpoint(..) => Some(RefusedStep::Checkpoint),
        Action::Abandon(..) => Some(RefusedStep::Abandon),
        Action::Resolve(..) => Some(RefusedStep::Resolve),
        Action::Begin(_)
        | Action::Peek(_)
        | Action::Expire(_)
        | Action::Erase(_)
        | Action::Sweep => None,
    };
    let note = step.map(|step| Note { at: now, fence, kind: NoteKind::Refused(step) });
    Decision { note, ..keep(Answer::Lost(lost)) }
}
