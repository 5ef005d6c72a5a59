//! What a claim ended with, for those who wait for its end.

use super::record::Entry;
use super::step::{Action, Answer, Busy, BusyWhy, Existing};
use super::transition::transition;
use crate::claim::Fence;
use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;

/// What a claim ended with. A store that knows it gives it to all who wait for the claim, so that
/// none of them asks again.
///
/// It can be had only with a fingerprint, by the rule that a begin follows: who asks for something
/// else under the same key gets [`Existing::Mismatch`], and never the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimEnd {
    fingerprint: Fingerprint,
    existing: Existing,
}

impl ClaimEnd {
    /// What an entry says once its claim has ended; nothing if a begin could claim the operation,
    /// or has: then those who wait must ask.
    #[must_use]
    pub fn of(entry: &Entry, now: Timestamp) -> Option<Self> {
        let fingerprint = entry.record()?.subject.fingerprint;
        let peek = Action::Peek(fingerprint);
        match transition(Some(entry), &peek, now, Fence::NONE).answer {
            Answer::Existing(Existing::Busy(Busy { why: BusyWhy::Running, .. })) => None,
            Answer::Existing(existing) => Some(Self { fingerprint, existing }),
            _ => None,
        }
    }

    /// What became of the operation, for one who asks for this.
    #[must_use]
    pub fn existing(&self, asked: &Fingerprint) -> Existing {
        if self.fingerprint.agrees_with(asked) { self.existing.clone() } else { Existing::Mismatch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Step;
    use crate::{Key, Operation, Outcome, Owner, Scope, Token};

    /// An operation after a begin and one more step.
    fn after(then: impl FnOnce(Fence) -> Action) -> (Operation, Option<Entry>) {
        let scope = Scope::global();
        let fingerprint = Fingerprint::of_json(&scope, b"1");
        let operation = Operation::new(scope, Key::client("a").unwrap(), fingerprint);
        let begin = Step::begin(&operation, Owner::new("a"), Token(1));
        let now = Timestamp::from_millis(1);
        let decision = transition(None, &begin.action, now, Fence::new(1));
        let Answer::Claimed(claimed) = decision.answer.clone() else { panic!("it was new") };
        let (stored, _) = decision.carry_out(None);
        let action = then(claimed.fence);
        let entry = stored.as_ref().map(|stored| &stored.entry);
        let (stored, _) = transition(entry, &action, now, Fence::NONE).carry_out(stored.clone());
        (operation, stored.map(|stored| stored.entry))
    }

    #[test]
    fn who_asks_for_something_else_never_gets_the_outcome() {
        let (operation, entry) = after(|fence| Action::Complete(fence, Outcome::bytes("secret")));
        let ended = ClaimEnd::of(&entry.unwrap(), Timestamp::from_millis(2)).unwrap();
        let existing = ended.existing(&operation.fingerprint());
        assert_eq!(existing.completed(), Some(&Outcome::bytes("secret")));
        let other = Fingerprint::of_json(operation.scope(), b"2");
        assert_eq!(ended.existing(&other), Existing::Mismatch);
    }

    #[test]
    fn what_still_runs_has_not_ended() {
        let (_, entry) = after(Action::Renew);
        assert_eq!(ClaimEnd::of(&entry.unwrap(), Timestamp::from_millis(2)), None);
    }
}
