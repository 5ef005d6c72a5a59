//! The writes, done wrong.

use justonce_core::{
    Action, Answer, Change, Decision, Entry, Existing, Failed, Fence, Lost, MAX_LEASE, OnLapsed,
    State, Timestamp, transition,
};

use super::tools::{forgotten, kept, misstored, other_policy, with_claim, with_its_fence};

/// Takes the fence of some writes on trust.
fn without_fence(
    entry: Option<&Entry>,
    action: &Action,
    (now, fresh): (Timestamp, Fence),
    trusted: bool,
) -> Decision {
    if trusted {
        let action = with_its_fence(entry, action);
        return transition(entry, &action, now, fresh);
    }
    transition(entry, action, now, fresh)
}

/// The state of the record, if the write carries its fence.
fn own<'a>(entry: Option<&'a Entry>, action: &Action) -> Option<&'a State> {
    let record = entry?.record()?;
    (action.fence() == Some(record.fence)).then_some(&record.state)
}

pub(super) fn stale_fence_completes(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let trusted = matches!(action, Action::Complete(..));
    without_fence(entry, action, (now, fresh), trusted)
}

pub(super) fn stale_fence_fails(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let trusted = matches!(action, Action::Fail(..));
    without_fence(entry, action, (now, fresh), trusted)
}

pub(super) fn stale_fence_releases(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let trusted = matches!(action, Action::Release(_));
    without_fence(entry, action, (now, fresh), trusted)
}

pub(super) fn stale_fence_renews(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let trusted = matches!(action, Action::Renew(_));
    without_fence(entry, action, (now, fresh), trusted)
}

pub(super) fn stale_fence_saves(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let trusted = matches!(action, Action::Checkpoint(..));
    without_fence(entry, action, (now, fresh), trusted)
}

pub(super) fn stale_fence_abandons(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let trusted = matches!(action, Action::Abandon(..));
    without_fence(entry, action, (now, fresh), trusted)
}

pub(super) fn stale_fence_resolves(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let trusted = matches!(action, Action::Resolve(..));
    without_fence(entry, action, (now, fresh), trusted)
}

pub(super) fn stale_fence_expires(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let trusted = matches!(action, Action::Expire(_));
    without_fence(entry, action, (now, fresh), trusted)
}

pub(super) fn stale_fence_erases(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let trusted = matches!(action, Action::Erase(_));
    without_fence(entry, action, (now, fresh), trusted)
}

pub(super) fn completed_is_overwritten(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    match (entry, own(entry, action), action) {
        (Some(Entry::Record(old)), Some(State::Completed(_)), Action::Complete(_, outcome))
            if decision.answer == Answer::Lost(Lost::Settled) =>
        {
            let mut record = old.clone();
            if let State::Completed(settled) = &mut record.state {
                settled.outcome = outcome.clone();
            }
            Decision {
                change: Change::Put(Entry::Record(record)),
                answer: Answer::Applied,
                note: None,
                durable: true,
            }
        }
        _ => decision,
    }
}

pub(super) fn abandon_frees_under_hold(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    match (own(entry, action), action) {
        (Some(State::InProgress(claim)), Action::Abandon(..))
            if claim.policy.on_lapsed() == OnLapsed::Hold =>
        {
            forgotten(decision)
        }
        _ => decision,
    }
}

pub(super) fn becoming_unknown_is_told_twice(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    match (&decision.answer, action) {
        (Answer::Existing(Existing::Unknown(unknown)), Action::Begin(_)) => {
            let answer = Answer::Held(*unknown);
            Decision { answer, ..decision }
        }
        _ => decision,
    }
}

pub(super) fn running_is_resolved(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let lapsed = with_claim(entry, |claim| {
        if matches!(action, Action::Resolve(..)) {
            claim.lease_until = now;
        }
    });
    transition(lapsed.as_ref(), action, now, fresh)
}

pub(super) fn unknown_is_never_resolved(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    match action {
        Action::Resolve(..) => kept(Answer::Lost(Lost::NotUnknown)),
        _ => transition(entry, action, now, fresh),
    }
}

pub(super) fn renewal_ignores_the_cap(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let (Some(State::InProgress(old)), Action::Renew(_)) = (own(entry, action), action) else {
        return transition(entry, action, now, fresh);
    };
    let endless = with_claim(entry, |claim| {
        claim.policy = other_policy(&claim.policy, |p| p.lease_cap(MAX_LEASE));
    });
    misstored(transition(endless.as_ref(), action, now, fresh), |record| {
        if let State::InProgress(claim) = &mut record.state {
            claim.policy = old.policy.clone();
        }
    })
}

pub(super) fn renewal_is_told_and_not_stored(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    match decision.answer {
        Answer::Renewed(_) => kept(decision.answer),
        _ => decision,
    }
}

pub(super) fn refused_write_says_applied(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    match decision.answer {
        Answer::Lost(Lost::Superseded) => kept(Answer::Applied),
        _ => decision,
    }
}

pub(super) fn lapsed_owner_cannot_settle(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    match own(entry, action) {
        Some(State::InProgress(claim)) if !claim.is_alive(now) => {
            kept(Answer::Lost(Lost::Superseded))
        }
        _ => transition(entry, action, now, fresh),
    }
}

pub(super) fn late_owner_cannot_say_what_is_unknown(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    match (own(entry, action), action) {
        (Some(State::Unknown(_)), Action::Complete(..)) => kept(Answer::Lost(Lost::Held)),
        _ => transition(entry, action, now, fresh),
    }
}

pub(super) fn repeated_complete_is_refused(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    match (own(entry, action), action) {
        (Some(State::Completed(_)), Action::Complete(..)) => kept(Answer::Lost(Lost::Settled)),
        _ => transition(entry, action, now, fresh),
    }
}

pub(super) fn completion_need_not_be_durable(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    let durable = decision.durable && !matches!(action, Action::Complete(..));
    Decision { durable, ..decision }
}

pub(super) fn renewal_revives_a_held_claim(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let (Some(State::InProgress(old)), Action::Renew(_)) = (own(entry, action), action) else {
        return transition(entry, action, now, fresh);
    };
    let free = with_claim(entry, |claim| {
        claim.policy = other_policy(&claim.policy, |p| p.on_lapsed(OnLapsed::Rerun));
    });
    misstored(transition(free.as_ref(), action, now, fresh), |record| {
        if let State::InProgress(claim) = &mut record.state {
            claim.policy = old.policy.clone();
        }
    })
}

pub(super) fn passing_failure_says_it_is_permanent(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    match (own(entry, action), action) {
        (Some(State::Failed(Failed::AwaitingRetry(waiting))), Action::Fail(_, failure))
            if waiting.failure == failure.outcome =>
        {
            kept(Answer::Applied)
        }
        _ => transition(entry, action, now, fresh),
    }
}
