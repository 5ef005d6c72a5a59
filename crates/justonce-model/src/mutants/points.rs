//! Checkpoints, done wrong.

use justonce_core::{Action, Checkpoint, Decision, Entry, Fence, State, Timestamp, transition};

use super::tools::{misstored, takeover, with_claim};

pub(super) fn checkpoint_ignores_its_number(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let without = with_claim(entry, |claim| {
        if matches!(action, Action::Checkpoint(..)) {
            claim.checkpoint = claim.checkpoint.take().map(|last| last.numbered(0));
        }
    });
    transition(without.as_ref(), action, now, fresh)
}

pub(super) fn checkpoint_need_not_be_durable(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    let durable = decision.durable && !matches!(action, Action::Checkpoint(..));
    Decision { durable, ..decision }
}

pub(super) fn checkpoint_is_told_and_not_stored(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let decision = transition(entry, action, now, fresh);
    if !matches!(action, Action::Checkpoint(..)) {
        return decision;
    }
    let last = entry.and_then(checkpoint_of);
    misstored(decision, |record| {
        if let State::InProgress(claim) = &mut record.state {
            claim.checkpoint = last;
        }
    })
}

pub(super) fn takeover_loses_the_checkpoint(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    takeover((entry, action), now, fresh, |_, claimed| {
        claimed.checkpoint = None;
    })
}

pub(super) fn takeover_keeps_the_number(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    takeover((entry, action), now, fresh, |before, claimed| {
        if claimed.checkpoint.is_some() {
            claimed.checkpoint = checkpoint_of(before);
        }
    })
}

fn checkpoint_of(entry: &Entry) -> Option<Checkpoint> {
    match &entry.record()?.state {
        State::InProgress(claim) => claim.checkpoint.clone(),
        _ => None,
    }
}
