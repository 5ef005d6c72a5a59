//! What gives a claim back, done wrong.

use justonce_core::{
    Action, Decision, Entry, Failed, Fence, Resolution, State, StateName, Timestamp, transition,
};

use super::tools::{forgotten, misstored, takeover};

/// Whether a resolution is that nothing happened.
fn frees(action: &Action) -> bool {
    match action {
        Action::Resolve(_, resolve) => resolve.resolution == Resolution::Release,
        _ => false,
    }
}

pub(super) fn release_forgets_earlier_attempts(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    let owns = action.fence() == entry.map(Entry::fence);
    if matches!(action, Action::Release(_)) && owns { forgotten(decision) } else { decision }
}

pub(super) fn release_forgets_the_checkpoint(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    misstored(transition(entry, action, now, fresh), |record| {
        if let (Action::Release(_), State::Failed(Failed::AwaitingRetry(waiting))) =
            (action, &mut record.state)
        {
            waiting.checkpoint = None;
        }
    })
}

pub(super) fn released_attempt_counts(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    misstored(transition(entry, action, now, fresh), |record| {
        if matches!(action, Action::Release(_)) {
            record.attempt += 1;
        }
    })
}

pub(super) fn resolution_keeps_the_checkpoint(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let last = match entry.and_then(Entry::record).map(|record| &record.state) {
        Some(State::Unknown(unknown)) => unknown.checkpoint.clone(),
        Some(State::InProgress(claim)) => claim.checkpoint.clone(),
        _ => None,
    };
    misstored(transition(entry, action, now, fresh), |record| {
        if let State::Failed(Failed::AwaitingRetry(waiting)) = &mut record.state
            && frees(action)
        {
            waiting.checkpoint = last;
        }
    })
}

pub(super) fn resolution_leaves_no_trace(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    let stores = decision.durable && frees(action);
    if stores { forgotten(decision) } else { decision }
}

pub(super) fn given_back_is_claimed_from_the_start(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    takeover((entry, action), now, fresh, |before, claimed| {
        if [StateName::Failed, StateName::Released].contains(&before.state_name()) {
            claimed.checkpoint = None;
        }
    })
}
