//! What time demands, done wrong.

use justonce_core::{Action, Answer, Decision, Entry, Failed, Fence, State, Timestamp, transition};

use super::tools::{forgotten, misstored, with_claim};

fn stored(entry: Option<&Entry>) -> Option<&State> {
    Some(&entry?.record()?.state)
}

pub(super) fn retention_removes_unknown(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    match (stored(entry), action) {
        (Some(State::Unknown(_)), Action::Sweep) => forgotten(decision),
        _ => decision,
    }
}

pub(super) fn retention_removes_in_progress(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    match (stored(entry), action) {
        (Some(State::InProgress(claim)), Action::Sweep) if !claim.is_alive(now) => {
            forgotten(decision)
        }
        _ => decision,
    }
}

pub(super) fn retention_ends_at_once(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    misstored(transition(entry, action, now, fresh), |record| {
        if let State::Completed(settled) = &mut record.state {
            settled.expires_at = now;
        }
    })
}

pub(super) fn sweep_holds_a_live_claim(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let lapsed = with_claim(entry, |claim| {
        if *action == Action::Sweep {
            claim.lease_until = now;
        }
    });
    transition(lapsed.as_ref(), action, now, fresh)
}

pub(super) fn back_off_never_ends(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    misstored(transition(entry, action, now, fresh), |record| {
        if let State::Failed(Failed::AwaitingRetry(waiting)) = &mut record.state {
            waiting.retry_at = Timestamp::MAX;
        }
    })
}

pub(super) fn back_off_is_over_at_once(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    misstored(transition(entry, action, now, fresh), |record| {
        if let State::Failed(Failed::AwaitingRetry(waiting)) = &mut record.state {
            waiting.retry_at = now;
        }
    })
}

pub(super) fn sweep_holds_as_of_now(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    misstored(transition(entry, action, now, fresh), |record| {
        if *action == Action::Sweep {
            record.changed_at = now;
        }
    })
}

/// Carries the step out although the operation has not ended.
fn taken(decision: Decision) -> Decision {
    Decision { answer: Answer::Applied, durable: true, ..forgotten(decision) }
}

pub(super) fn expire_takes_what_is_unknown(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    match (stored(entry), action) {
        (Some(State::Unknown(_)), Action::Expire(_)) => taken(decision),
        _ => decision,
    }
}

pub(super) fn erase_takes_what_is_running(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    match (stored(entry), action) {
        (Some(State::InProgress(_)), Action::Erase(_)) => taken(decision),
        _ => decision,
    }
}

pub(super) fn erase_takes_what_waits(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    match (stored(entry), action) {
        (Some(State::Failed(Failed::AwaitingRetry(_))), Action::Erase(_)) => taken(decision),
        _ => decision,
    }
}
