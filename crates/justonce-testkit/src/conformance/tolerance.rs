//! Comparing with a store whose clock runs by itself: moments that differ by no more than the
//! slack are the same.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::Stored;
use justonce_core::{
    Answer, Entry, Existing, Failed, Record, State, Subject, Timeline, Timestamp, Tombstone,
};

/// Whether an answer is the expected one.
pub(super) fn same_answer(seen: &Answer, expected: &Answer, slack: Duration) -> bool {
    if seen == expected {
        return true;
    }
    if slack.is_zero() {
        return false;
    }
    let snap = |to: Duration, from: Duration| if to.abs_diff(from) <= slack { to } else { from };
    let mut snapped = expected.clone();
    match (seen, &mut snapped) {
        (Answer::Claimed(to), Answer::Claimed(from)) => from.lease = snap(to.lease, from.lease),
        (Answer::Renewed(to), Answer::Renewed(from)) => *from = snap(*to, *from),
        (Answer::Existing(Existing::Busy(to)), Answer::Existing(Existing::Busy(from))) => {
            from.left = snap(to.left, from.left);
        }
        (
            Answer::Existing(Existing::Completed(to)),
            Answer::Existing(Existing::Completed(from)),
        )
        | (Answer::Existing(Existing::Failed(to)), Answer::Existing(Existing::Failed(from))) => {
            from.left = snap(to.left, from.left);
        }
        (Answer::Existing(Existing::Unknown(to)), Answer::Existing(Existing::Unknown(from)))
        | (Answer::Held(to), Answer::Held(from)) => {
            from.since = Slack(slack).snap(to.since, from.since);
        }
        (Answer::Existing(Existing::Expired(to)), Answer::Existing(Existing::Expired(from))) => {
            *from = Slack(slack).snap(*to, *from);
        }
        _ => {}
    }
    *seen == snapped
}

/// Whether what is stored is what is expected.
pub(super) fn same_stored(
    seen: Option<&Stored>,
    expected: Option<&Stored>,
    slack: Duration,
) -> bool {
    if seen == expected {
        return true;
    }
    match (seen, expected) {
        (Some(seen), Some(expected)) if !slack.is_zero() => {
            *seen == Slack(slack).stored(seen, expected)
        }
        _ => false,
    }
}

/// Moves what was expected to what was seen, moment by moment, as far as the slack allows.
#[derive(Clone, Copy)]
struct Slack(Duration);

impl Slack {
    fn snap(self, to: Timestamp, from: Timestamp) -> Timestamp {
        if to.since(from).max(from.since(to)) <= self.0 { to } else { from }
    }

    fn stored(self, to: &Stored, from: &Stored) -> Stored {
        Stored {
            entry: self.entry(&to.entry, &from.entry),
            timeline: self.timeline(&to.timeline, &from.timeline),
        }
    }

    fn timeline(self, to: &Timeline, from: &Timeline) -> Timeline {
        let mut notes = from.notes().to_vec();
        for (to, from) in to.notes().iter().zip(&mut notes) {
            from.at = self.snap(to.at, from.at);
        }
        Timeline::from_parts(notes, from.dropped())
    }

    fn entry(self, to: &Entry, from: &Entry) -> Entry {
        match (to, from) {
            (Entry::Record(to), Entry::Record(from)) => Entry::Record(self.record(to, from)),
            (Entry::Tombstone(to), Entry::Tombstone(from)) => Entry::Tombstone(Tombstone {
                fence: from.fence,
                since: self.snap(to.since, from.since),
                until: self.snap(to.until, from.until),
            }),
            _ => from.clone(),
        }
    }

    fn record(self, to: &Record, from: &Record) -> Record {
        let subject = Subject {
            created_at: self.snap(to.subject.created_at, from.subject.created_at),
            ..(*from.subject).clone()
        };
        let mut state = from.state.clone();
        self.state(&to.state, &mut state);
        Record {
            subject: Arc::new(subject),
            changed_at: self.snap(to.changed_at, from.changed_at),
            state,
            ..from.clone()
        }
    }

    fn state(self, to: &State, from: &mut State) {
        match (to, from) {
            (State::InProgress(to), State::InProgress(from)) => {
                from.claimed_at = self.snap(to.claimed_at, from.claimed_at);
                from.lease_until = self.snap(to.lease_until, from.lease_until);
            }
            (State::Completed(to), State::Completed(from))
            | (State::Failed(Failed::Final(to)), State::Failed(Failed::Final(from))) => {
                from.expires_at = self.snap(to.expires_at, from.expires_at);
            }
            (
                State::Failed(Failed::AwaitingRetry(to)),
                State::Failed(Failed::AwaitingRetry(from)),
            ) => {
                from.retry_at = self.snap(to.retry_at, from.retry_at);
                from.expires_at = self.snap(to.expires_at, from.expires_at);
            }
            _ => {}
        }
    }
}
