//! When a handler may be started.

use std::collections::BTreeMap;
use std::time::Duration;

use justonce_core::{Fence, OnFailure, OnLapsed};

use super::view::{View, Violation, fence_in};
use crate::history::{Event, Said, What};

/// Longer than any run.
const LONG_RETENTION: Duration = Duration::from_secs(12 * 3600);

/// Under `hold` a handler is started once, unless its operation was freed.
pub(crate) fn at_most_once(view: &View<'_>) -> Option<Violation> {
    if view.plan.policy.on_lapsed() != OnLapsed::Hold {
        return None;
    }
    let executions = view.executions();
    let next = executions.iter().skip(1);
    executions.iter().zip(next).find_map(|(first, second)| {
        (first.fence == second.fence || !view.frees(first, second.start)).then(|| {
            let why = format!(
                "call {} started a handler with fence {}, though call {} had with fence {} and \
                 nothing freed the operation",
                second.of.call, second.fence, first.of.call, first.fence
            );
            view.violation("at most once under hold", why)
        })
    })
}

/// Once a caller has an outcome, no later claim is executed for as long as it is kept.
pub(crate) fn nothing_after_an_outcome(view: &View<'_>) -> Option<Violation> {
    let executions = view.executions();
    view.answers().into_iter().find_map(|answered| {
        let text = answered.answer.reply()?;
        let fence = fence_in(text)?;
        let again = executions.iter().find(|e| e.fence > fence && e.start > answered.at)?;
        (!view.may_be_gone(fence, again.start)).then(|| {
            let why = format!(
                "call {} was given {text:?}, and then call {} started a handler with fence {}",
                answered.of.call, again.of.call, again.fence
            );
            view.violation("nothing after an outcome", why)
        })
    })
}

/// The fences of an operation grow.
pub(crate) fn fences_grow(view: &View<'_>) -> Option<Violation> {
    let executions = view.executions();
    executions.iter().find_map(|later| {
        let asked = view.asked(later.of.call)?;
        let earlier = executions
            .iter()
            .find(|e| e.start < asked && e.fence >= later.fence && e.start != later.start)?;
        let why = format!(
            "call {} asked after a handler had started with fence {}, and got fence {}",
            later.of.call, earlier.fence, later.fence
        );
        Some(view.violation("fences grow", why))
    })
}

/// No fence is given twice, whatever the operation.
pub(crate) fn no_fence_twice(events: &[Event]) -> Option<Violation> {
    let mut given: BTreeMap<Fence, usize> = BTreeMap::new();
    events.iter().find_map(|event| {
        let What::Started { of, fence, .. } = &event.what else { return None };
        let before = given.insert(*fence, of.call).filter(|call| *call != of.call)?;
        Some(Violation {
            rule: "no fence twice",
            operation: None,
            why: format!("calls {before} and {} both got fence {fence}", of.call),
        })
    })
}

/// An operation is tried no more often than its policy allows.
pub(crate) fn attempts_are_limited(view: &View<'_>) -> Option<Violation> {
    let most = view.plan.policy.max_attempts()?.get();
    let executions = view.executions();
    let above = executions.iter().find(|execution| execution.attempt > most)?;
    let why = format!(
        "call {} started attempt {} with fence {}, and {most} are allowed",
        above.of.call, above.attempt, above.fence
    );
    Some(view.violation("attempts are limited", why))
}

/// Under `resume` a takeover starts from what was saved last, or later.
pub(crate) fn checkpoints_are_kept(view: &View<'_>) -> Option<Violation> {
    let executions = view.executions();
    // After the first attempt a release leaves nothing.
    let releases = view.plan.policy.on_failure() == OnFailure::Release;
    let released = |said: &Option<(usize, Said)>| match said {
        Some((_, Said::NotExecuted)) => true,
        Some((_, Said::Retryable(_) | Said::Unclassified(_))) => releases,
        _ => false,
    };
    if view.plan.policy.on_lapsed() != OnLapsed::Resume
        || executions.iter().any(|execution| released(&execution.said))
        // A claim that is given back begins a retention, and nobody sees it.
        || view.plan.policy.retention() < LONG_RETENTION
        // What an operator releases did not happen: it begins anew.
        || view.orders().next().is_some()
    {
        return None;
    }
    let own = view.events.iter().enumerate();
    own.filter(|(_, event)| event.what.operation() == Some(view.operation)).find_map(
        |(at, event)| {
            let What::Saved { fence, number, .. } = &event.what else { return None };
            let next = executions.iter().find(|e| e.fence > *fence && e.start > at)?;
            let kept = next.checkpoint >= *number || view.may_be_forgotten(*fence, next.start);
            (!kept).then(|| {
                let why = format!(
                    "checkpoint {number} was saved with fence {fence}, and call {} started from \
                     checkpoint {}",
                    next.of.call, next.checkpoint
                );
                view.violation("checkpoints are kept", why)
            })
        },
    )
}
