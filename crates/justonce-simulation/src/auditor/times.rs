//! What comes at its time: not before, and not long after.

use std::time::Duration;

use justonce_core::OnFailure;

use super::owners::{is_undisturbed, stands_still};
use super::view::{NEAR_MS, View, Violation, fence_in};
use crate::history::{Answer, Said};

/// The way of an answer may take as long as a shorter lease: a place is waited for, and calls of
/// the store are repeated.
const LONG_LEASE: Duration = Duration::from_secs(20);

/// What failed and may be tried again is not tried before its back-off is over: it takes at least
/// half of what it begins with.
pub(crate) fn a_back_off_is_waited_for(view: &View<'_>) -> Option<Violation> {
    let OnFailure::Retry(back_off) = view.plan.policy.on_failure() else { return None };
    if !view.clock_is_steady() || view.orders().next().is_some() {
        return None;
    }
    let least = u64::try_from(back_off.first.as_millis() / 2).unwrap_or(u64::MAX);
    let executions = view.executions();
    view.answers().into_iter().find_map(|answered| {
        let Answer::Failed(text) = answered.answer else { return None };
        let failed = executions.iter().find(|e| Some(e.fence) == fence_in(text))?;
        let Some((said_at, Said::Retryable(_))) = &failed.said else { return None };
        let next = executions.iter().find(|e| e.fence > failed.fence && e.start > answered.at)?;
        let waited = view.between(*said_at, next.start);
        (waited < least).then(|| {
            let why = format!(
                "the handler of fence {} failed, and {waited} ms later call {} started one with \
                 fence {}; {least} ms are the least",
                failed.fence, next.of.call, next.fence
            );
            view.violation("a back-off is waited for", why)
        })
    })
}

/// An outcome is not replayed when its retention is over.
pub(crate) fn what_is_over_is_not_replayed(view: &View<'_>) -> Option<Violation> {
    if !view.clock_is_steady() || view.orders().next().is_some() {
        return None;
    }
    let near = Duration::from_millis(if view.near_cache { NEAR_MS } else { 0 });
    let limit = view.plan.policy.retention() + near;
    let answers = view.answers();
    answers.iter().find_map(|late| {
        let Answer::Replayed(text) = late.answer else { return None };
        let stored = answers.iter().find(|other| is_executed(other.answer, text))?;
        let age = view.between(stored.at, late.asked);
        (Duration::from_millis(age) > limit).then(|| {
            let why = format!(
                "call {} asked {age} ms after {text:?} was stored, and was given it; its retention \
                 was over",
                late.of.call
            );
            view.violation("what is over is not replayed", why)
        })
    })
}

/// A duplicate that waits is told when the operation ends, and not when its lease would have.
pub(crate) fn who_waits_is_told(view: &View<'_>) -> Option<Violation> {
    let lease = view.plan.policy.lease();
    if lease < LONG_LEASE {
        return None;
    }
    let limit = lease * 8 / 10;
    let answers = view.answers();
    answers.iter().find_map(|waited| {
        let Answer::Replayed(text) = waited.answer else { return None };
        let ended = answers.iter().find(|other| is_executed(other.answer, text))?;
        let late = view.between(ended.at, waited.at);
        let process = waited.of.process;
        let was_late = waited.asked < ended.at && Duration::from_millis(late) > limit;
        (was_late
            && is_undisturbed(view, process, waited.asked, waited.at)
            && !stands_still(view, process, waited.asked, waited.at))
        .then(|| {
            let why = format!(
                "call {} waited, and was given {text:?} {late} ms after call {} was",
                waited.of.call, ended.of.call
            );
            view.violation("who waits is told", why)
        })
    })
}

fn is_executed(answer: &Answer, text: &str) -> bool {
    matches!(answer, Answer::Executed(other) if other == text)
}
