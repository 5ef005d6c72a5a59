//! Tools to tamper with what goes into the rules and what comes out of them.

use std::sync::Arc;

use justonce_core::{
    Action, Answer, Change, Claimed, Decision, Entry, Fence, InProgress, Policy, PolicyBuilder,
    Record, State, Timestamp, transition,
};

/// The entry with something wrong in its record.
pub(super) fn tampered(entry: Option<&Entry>, tamper: impl FnOnce(&mut Record)) -> Option<Entry> {
    let mut entry = entry.cloned();
    if let Some(Entry::Record(record)) = &mut entry {
        tamper(record);
    }
    entry
}

/// The entry with something wrong in its claim.
pub(super) fn with_claim(
    entry: Option<&Entry>,
    tamper: impl FnOnce(&mut InProgress),
) -> Option<Entry> {
    tampered(entry, |record| {
        if let State::InProgress(claim) = &mut record.state {
            tamper(claim);
        }
    })
}

/// The decision with something wrong in the record that it stores.
pub(super) fn misstored(mut decision: Decision, tamper: impl FnOnce(&mut Record)) -> Decision {
    if let Change::Put(Entry::Record(record)) = &mut decision.change {
        tamper(record);
    }
    decision
}

/// Stores nothing, and answers this.
pub(super) const fn kept(answer: Answer) -> Decision {
    Decision { change: Change::Keep, answer, note: None, durable: false }
}

/// The same decision, but the record is forgotten.
pub(super) fn forgotten(decision: Decision) -> Decision {
    Decision { change: Change::Remove, note: None, ..decision }
}

/// The same promise with one part changed; the promise itself if that is not possible.
pub(super) fn other_policy(
    policy: &Arc<Policy>,
    change: fn(PolicyBuilder) -> PolicyBuilder,
) -> Arc<Policy> {
    let same = Policy::builder()
        .lease(policy.lease())
        .lease_cap(policy.lease_cap())
        .on_lapsed(policy.on_lapsed())
        .on_failure(policy.on_failure())
        .max_attempts(policy.max_attempts())
        .retention(policy.retention())
        .after_retention(policy.after_retention());
    change(same).build().map_or(Arc::clone(policy), Arc::new)
}

/// The same write with the fence of the record, whatever fence it carries.
pub(super) fn with_its_fence(entry: Option<&Entry>, action: &Action) -> Action {
    let fence = entry.map_or(Fence::NONE, Entry::fence);
    match action.clone() {
        Action::Complete(_, outcome) => Action::Complete(fence, outcome),
        Action::Fail(_, failure) => Action::Fail(fence, failure),
        Action::Release(_) => Action::Release(fence),
        Action::Renew(_) => Action::Renew(fence),
        Action::Checkpoint(_, point) => Action::Checkpoint(fence, point),
        Action::Abandon(_, reason) => Action::Abandon(fence, reason),
        Action::Resolve(_, resolve) => Action::Resolve(fence, resolve),
        Action::Expire(_) => Action::Expire(fence),
        Action::Erase(_) => Action::Erase(fence),
        other => other,
    }
}

/// Changes what a takeover hands out and stores alike.
pub(super) fn takeover(
    (entry, action): (Option<&Entry>, &Action),
    now: Timestamp,
    fresh: Fence,
    tamper: impl FnOnce(&Entry, &mut Claimed),
) -> Decision {
    let mut decision = transition(entry, action, now, fresh);
    let (Some(before), Answer::Claimed(claimed)) = (entry, &mut decision.answer) else {
        return decision;
    };
    if claimed.attempt < 2 || decision.change == Change::Keep {
        return decision;
    }
    tamper(before, claimed);
    let claimed = claimed.clone();
    misstored(decision, |record| {
        record.fence = claimed.fence;
        record.attempt = claimed.attempt;
        if let State::InProgress(claim) = &mut record.state {
            claim.checkpoint = claimed.checkpoint;
        }
    })
}
