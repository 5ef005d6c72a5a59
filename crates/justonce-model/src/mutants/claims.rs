//! Begin, done wrong.

use justonce_core::{
    Action, Answer, Begin, Busy, BusyWhy, Decision, Entry, Existing, Failed, Fence, OnLapsed,
    State, Timestamp, Token, transition,
};

use super::tools::{kept, misstored, other_policy, takeover, tampered, with_claim};

/// A token of no caller.
const NOBODY: Token = Token(u128::MAX);

fn is_begin(action: &Action) -> bool {
    matches!(action, Action::Begin(_))
}

/// The first claim of all, whatever is stored.
fn as_if_absent(action: &Action, now: Timestamp, fresh: Fence) -> Decision {
    transition(None, action, now, fresh)
}

/// Whether a begin has the token of the claim.
fn is_same_call(entry: Option<&Entry>, action: &Action) -> bool {
    match (entry.and_then(Entry::record).map(|r| &r.state), action) {
        (Some(State::InProgress(claim)), Action::Begin(begin)) => claim.token == begin.token,
        _ => false,
    }
}

pub(super) fn begin_ignores_the_lease(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let alone = is_begin(action) && !is_same_call(entry, action);
    let lapsed = with_claim(entry, |claim| {
        if alone {
            claim.lease_until = now;
        }
    });
    transition(lapsed.as_ref(), action, now, fresh)
}

pub(super) fn lapsed_hold_runs_again(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    if !is_begin(action) {
        return transition(entry, action, now, fresh);
    }
    let rerun = with_claim(entry, |claim| {
        claim.policy = other_policy(&claim.policy, |p| p.on_lapsed(OnLapsed::Rerun));
    });
    transition(rerun.as_ref(), action, now, fresh)
}

pub(super) fn unknown_is_claimed(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    match entry.and_then(Entry::record).map(|record| &record.state) {
        Some(State::Unknown(_)) if is_begin(action) => as_if_absent(action, now, fresh),
        _ => transition(entry, action, now, fresh),
    }
}

pub(super) fn takeover_keeps_the_fence(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    takeover((entry, action), now, fresh, |before, claimed| {
        claimed.fence = before.fence();
    })
}

pub(super) fn takeover_is_no_attempt(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    takeover((entry, action), now, fresh, |_, claimed| {
        claimed.attempt -= 1;
    })
}

pub(super) fn rerun_gets_the_checkpoint(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let resumes = with_claim(entry, |claim| {
        if is_begin(action) {
            claim.policy = other_policy(&claim.policy, |p| p.on_lapsed(OnLapsed::Resume));
        }
    });
    transition(resumes.as_ref(), action, now, fresh)
}

pub(super) fn attempts_have_no_limit(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let endless = with_claim(entry, |claim| {
        if is_begin(action) {
            claim.policy = other_policy(&claim.policy, |p| p.max_attempts(None));
        }
    });
    transition(endless.as_ref(), action, now, fresh)
}

pub(super) fn repeated_begin_claims_anew(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let anew = with_claim(entry, |claim| {
        if is_same_call(entry, action) {
            claim.lease_until = now;
        }
    });
    transition(anew.as_ref(), action, now, fresh)
}

pub(super) fn repeated_begin_is_a_duplicate(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let stranger = with_claim(entry, |claim| claim.token = NOBODY);
    match action {
        Action::Begin(_) => transition(stranger.as_ref(), action, now, fresh),
        _ => transition(entry, action, now, fresh),
    }
}

pub(super) fn back_off_is_ignored(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let over = tampered(entry, |record| {
        if let State::Failed(Failed::AwaitingRetry(waiting)) = &mut record.state
            && is_begin(action)
        {
            waiting.retry_at = now;
        }
    });
    transition(over.as_ref(), action, now, fresh)
}

pub(super) fn fingerprint_is_ignored(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    match (entry.and_then(Entry::record), action) {
        (Some(record), Action::Begin(begin)) => {
            let begin = Begin { fingerprint: record.subject.fingerprint, ..begin.as_ref().clone() };
            transition(entry, &Action::Begin(Box::new(begin)), now, fresh)
        }
        _ => transition(entry, action, now, fresh),
    }
}

pub(super) fn completed_runs_again(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    match entry.and_then(Entry::record).map(|record| &record.state) {
        Some(State::Completed(_)) if is_begin(action) => as_if_absent(action, now, fresh),
        _ => transition(entry, action, now, fresh),
    }
}

pub(super) fn tombstone_is_ignored(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    match decision.answer {
        Answer::Existing(Existing::Expired(_)) => as_if_absent(action, now, fresh),
        _ => decision,
    }
}

pub(super) fn fences_start_again(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    _fresh: Fence,
) -> Decision {
    transition(entry, action, now, Fence::NONE)
}

pub(super) fn lapsed_is_busy_for_ever(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    match entry.and_then(Entry::record) {
        Some(record) if is_begin(action) => match &record.state {
            State::InProgress(claim) if !claim.is_alive(now) => {
                let busy =
                    Busy { why: BusyWhy::Running, fence: record.fence, left: claim.policy.lease() };
                kept(Answer::Existing(Existing::Busy(busy)))
            }
            _ => transition(entry, action, now, fresh),
        },
        _ => transition(entry, action, now, fresh),
    }
}

pub(super) fn peek_calls_busy_claimable(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    match (&decision.answer, action) {
        (Answer::Existing(Existing::Busy(_)), Action::Peek(_)) => kept(Answer::Claimable),
        _ => decision,
    }
}

pub(super) fn claim_need_not_be_durable(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    let durable = decision.durable && !is_begin(action);
    Decision { durable, ..decision }
}

pub(super) fn lease_is_shorter_than_told(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    if !matches!(decision.answer, Answer::Claimed(_)) {
        return decision;
    }
    misstored(decision, |record| {
        if let State::InProgress(claim) = &mut record.state {
            claim.lease_until = now;
        }
    })
}
