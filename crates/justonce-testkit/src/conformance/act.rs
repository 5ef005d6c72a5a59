//! The words of scripts. Fences, tokens and moments are known only when a script runs, so scripts
//! name them.

use justonce_core::{Entry, Failed, FailureKind, State, Timestamp, UnknownReason};

use super::setting::Setting;

/// What a script does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Act {
    Begin(Print, Call, Under),
    Peek(Print),
    Complete(Pick, Say),
    Fail(Pick, FailureKind, Say),
    Release(Pick),
    Renew(Pick),
    Checkpoint(Pick, Say),
    Abandon(Pick, UnknownReason),
    Resolve(Pick, How, Say),
    Expire(Pick),
    Erase(Pick),
    Sweep,
    /// The very same action as the one before: its reply was lost.
    Again,
}

/// Which fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Print {
    Same,
    Different,
    OtherVersion,
    Unchecked,
}

/// Which token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Call {
    /// That of the begin before.
    Earlier,
    New,
}

/// Which policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Under {
    Own,
    /// One with other rules and other durations.
    Other,
}

/// Which fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pick {
    /// The last one given for the record.
    Current,
    /// The one given before.
    Older,
    /// One far ahead of all that were given.
    NeverGiven,
}

/// Which of different things to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Say {
    First,
    Second,
    /// An outcome or a checkpoint without contents.
    Empty,
}

/// Which resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum How {
    Complete,
    Fail,
    Release,
}

/// A moment at which time alone changes what a record means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Boundary {
    LeaseEnd,
    LeaseCap,
    BackOffEnd,
    RetentionEnd,
    TombstoneEnd,
}

/// On which side of a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Side {
    JustBefore,
    At,
    JustAfter,
}

/// When a script does something, as seen from what it did before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum When {
    Now,
    At(Boundary, Side),
    /// Long after everything, except for what never ends.
    MuchLater,
}

/// One line of a script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) when: When,
    pub(super) act: Act,
}

impl Boundary {
    pub(super) const ALL: [Self; 5] =
        [Self::LeaseEnd, Self::LeaseCap, Self::BackOffEnd, Self::RetentionEnd, Self::TombstoneEnd];

    /// Where the boundary of an entry lies, if it has one.
    pub(super) fn of(self, entry: &Entry) -> Option<Timestamp> {
        let state = entry.record().map(|record| &record.state);
        match (self, state) {
            (Self::LeaseEnd, Some(State::InProgress(claim))) => Some(claim.lease_until),
            (Self::LeaseCap, Some(State::InProgress(claim))) => {
                Some(claim.claimed_at.after(claim.policy.lease_cap()))
            }
            (Self::BackOffEnd, Some(State::Failed(Failed::AwaitingRetry(waiting)))) => {
                Some(waiting.retry_at)
            }
            (Self::RetentionEnd, Some(_)) => entry.expires_at(),
            (Self::TombstoneEnd, None) => entry.expires_at(),
            (Self::TombstoneEnd, Some(State::Completed(settled)))
            | (Self::TombstoneEnd, Some(State::Failed(Failed::Final(settled)))) => {
                tombstone_end(settled.expires_at, settled.after_retention)
            }
            (Self::TombstoneEnd, Some(State::Failed(Failed::AwaitingRetry(waiting)))) => {
                tombstone_end(waiting.expires_at, waiting.policy.after_retention())
            }
            _ => None,
        }
    }
}

fn tombstone_end(
    retention_end: Timestamp,
    after: justonce_core::AfterRetention,
) -> Option<Timestamp> {
    match after {
        justonce_core::AfterRetention::New => None,
        justonce_core::AfterRetention::Refuse(life) => Some(retention_end.after(life)),
    }
}

impl When {
    /// Every relation to every boundary.
    pub(super) fn all() -> Vec<Self> {
        let mut all = vec![Self::Now];
        for boundary in Boundary::ALL {
            for side in [Side::JustBefore, Side::At, Side::JustAfter] {
                all.push(Self::At(boundary, side));
            }
        }
        all.push(Self::MuchLater);
        all
    }

    /// The moment; nothing if the entry has no such boundary, or it lies in the past.
    pub(super) fn moment(
        self,
        entry: Option<&Entry>,
        now: Timestamp,
        setting: &Setting,
    ) -> Option<Timestamp> {
        let (boundary, side) = match self {
            Self::Now => return Some(now),
            Self::MuchLater => return Some(now.after(setting.much_later)),
            Self::At(boundary, side) => (boundary, side),
        };
        let at = boundary.of(entry?)?;
        let moment = match side {
            Side::JustBefore => {
                at.as_millis().checked_sub(setting.tick_millis()).map(Timestamp::from_millis)?
            }
            Side::At => at,
            Side::JustAfter => at.after(setting.tick),
        };
        (moment >= now).then_some(moment)
    }
}

impl Line {
    pub(super) const fn now(act: Act) -> Self {
        Self { when: When::Now, act }
    }

    pub(super) const fn at(boundary: Boundary, act: Act) -> Self {
        let when = When::At(boundary, Side::At);
        Self { when, act }
    }

    pub(super) const fn before(boundary: Boundary, act: Act) -> Self {
        let when = When::At(boundary, Side::JustBefore);
        Self { when, act }
    }
}
