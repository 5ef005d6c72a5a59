//! What an owner may rely on: whose process lives and reaches the store keeps its claim, and its
//! result is stored.

use justonce_core::OnLapsed;

use super::view::{Execution, View, Violation};
use crate::generate::LEASES_IN_CAP;
use crate::history::{Answer, LATE_CLAIM, Said, What};
use crate::plan::is_lapse;

/// A lease does not lapse while its owner lives and reaches the store: nobody takes over, and the
/// operation does not become unknown.
pub(crate) fn a_healthy_owner_keeps_its_claim(view: &View<'_>) -> Option<Violation> {
    let executions = view.executions();
    let taken_over = executions.iter().find_map(|first| {
        let second = executions.iter().find(|e| e.fence > first.fence && e.start > first.start)?;
        let goes_on = matches!(first.said_by(second.start), None | Some(Said::Ok(_)));
        (goes_on && is_healthy(view, first, second.start) && !view.frees(first, second.start)).then(
            || {
                format!(
                    "call {} took over with fence {}, though the owner of fence {} was well",
                    second.of.call, second.fence, first.fence
                )
            },
        )
    });
    let unknown = || {
        view.answers().into_iter().find_map(|answered| {
            let Answer::Unknown { fence, reason } = answered.answer else { return None };
            let owner = executions.iter().find(|e| e.fence == *fence)?;
            (is_lapse(*reason) && is_healthy(view, owner, answered.at)).then(|| {
                format!(
                    "call {} was told that fence {fence} is unknown ({reason:?}), though its owner \
                     was well",
                    answered.of.call
                )
            })
        })
    };
    let why = taken_over.or_else(unknown)?;
    Some(view.violation("a healthy owner keeps its claim", why))
}

/// Whether an execution went on, or its result was on its way to the store, with nothing in the
/// way of either until then.
fn is_healthy(view: &View<'_>, execution: &Execution, until: usize) -> bool {
    let Some(asked) = view.asked(execution.of.call) else { return false };
    let cap = view.plan.policy.lease() * (LEASES_IN_CAP - 1);
    let in_time = u128::from(view.between(asked, until)) < cap.as_millis();
    let was_cut = execution.cut.is_some_and(|cut| cut < until);
    let said_something = !matches!(
        execution.said_by(until),
        Some(Said::Unknown | Said::Panicked | Said::Unclassified(_))
    );
    let left_before = view
        .left(execution.of.call)
        .is_some_and(|left| left < until && execution.said_by(left).is_none());
    let begun_in_peace = !stands_still(view, execution.of.process, asked, execution.start);
    in_time
        && !was_cut
        && said_something
        && !left_before
        && begun_in_peace
        && is_undisturbed(view, execution.of.process, asked, until)
}

/// Whether a process lived and reached the store from one place to another, and the clock did not
/// jump forward.
pub(crate) fn is_undisturbed(view: &View<'_>, process: usize, from: usize, to: usize) -> bool {
    let disturbs = |what: &What| match what {
        What::Crashed { process: other } => *other == process,
        What::Partitioned { process: other, .. } => *other == process,
        What::Jumped { by } => *by > 0,
        _ => false,
    };
    let cut_before = view
        .within(0, from)
        .filter_map(|what| match what {
            What::Partitioned { process: other, cut } if *other == process => Some(*cut),
            _ => None,
        })
        .last();
    cut_before != Some(true) && !view.within(from, to).any(disturbs)
}

/// Whether a process died between two places.
fn has_died(view: &View<'_>, process: usize, from: usize, to: usize) -> bool {
    let died = |what: &What| matches!(what, What::Crashed { process: other } if *other == process);
    view.within(from, to).any(died)
}

/// Whether the callers' runtime of a process stood still somewhere between two places.
pub(crate) fn stands_still(view: &View<'_>, process: usize, from: usize, to: usize) -> bool {
    let stalled = |what: &What| match what {
        What::Stalled { process: other, stands } if *other == process => Some(*stands),
        _ => None,
    };
    view.within(0, from).filter_map(stalled).last() == Some(true)
        || view.within(from, to).filter_map(stalled).any(|_| true)
}

/// A claim under which nothing was executed is released, and does not become unknown.
pub(crate) fn what_did_not_start_is_not_unknown(view: &View<'_>) -> Option<Violation> {
    let executions = view.executions();
    view.answers().into_iter().find_map(|answered| {
        let Answer::Unknown { fence, reason } = answered.answer else { return None };
        if !is_lapse(*reason) || executions.iter().any(|e| e.fence == *fence) {
            return None;
        }
        let excused = view.within(0, answered.at).any(|what| match what {
            What::Crashed { .. }
            | What::Partitioned { .. }
            | What::Stalled { .. }
            | What::Jumped { .. } => true,
            // Its caller had been answered by then, by another begin: nobody knows of the claim.
            What::Network { operation, what, .. } => {
                *operation == Some(view.operation) && what == LATE_CLAIM
            }
            _ => false,
        });
        (!excused).then(|| {
            let why = format!(
                "call {} was told that fence {fence} is unknown ({reason:?}), and no handler was \
                 started with it",
                answered.of.call
            );
            view.violation("what did not start is not unknown", why)
        })
    })
}

/// What a handler said it did is stored, if its process lives and reaches the store, whatever
/// becomes of its caller.
pub(crate) fn a_result_is_kept(view: &View<'_>) -> Option<Violation> {
    let answers = view.answers();
    let last = answers.iter().rev().find(|answered| {
        answered.answer.reply().is_some() || matches!(answered.answer, Answer::Expired)
    })?;
    if view.orders().next().is_some() {
        return unkept_unknown(view);
    }
    let executions = view.executions();
    executions.iter().find_map(|execution| {
        let Some((_, Said::Ok(text))) = &execution.said else { return None };
        let end = view.events.len();
        let asked = view.asked(execution.of.call)?;
        let kept = last.answer.reply() == Some(text) || view.may_be_near(last, execution);
        let undisturbed = is_undisturbed(view, execution.of.process, asked, end)
            && !stands_still(view, execution.of.process, asked, execution.start);
        if kept || !undisturbed || view.may_be_forgotten(execution.fence, last.at) {
            return None;
        }
        let why = format!(
            "the handler of call {} said {text:?}, and in the end call {} was answered {:?}",
            execution.of.call, last.of.call, last.answer
        );
        Some(view.violation("a result is kept", why))
    })
}

/// The same where operators had to say how it ended: they were told that it is unknown.
fn unkept_unknown(view: &View<'_>) -> Option<Violation> {
    let executions = view.executions();
    view.answers().into_iter().find_map(|answered| {
        let Answer::Unknown { fence, reason } = answered.answer else { return None };
        let execution = executions.iter().find(|e| e.fence == *fence)?;
        let (said_at, Said::Ok(text)) = execution.said.as_ref()? else { return None };
        let asked = view.asked(execution.of.call)?;
        let undisturbed = is_undisturbed(view, execution.of.process, asked, answered.at)
            && !stands_still(view, execution.of.process, asked, execution.start);
        (*said_at < answered.asked && undisturbed).then(|| {
            let why = format!(
                "the handler of call {} said {text:?}, and call {} was told that it is unknown \
                 ({reason:?})",
                execution.of.call, answered.of.call
            );
            view.violation("a result is kept", why)
        })
    })
}

/// A handler whose claim was taken over is dropped, once its owner can learn of it.
pub(crate) fn a_superseded_handler_is_dropped(view: &View<'_>) -> Option<Violation> {
    if view.plan.policy.on_lapsed() == OnLapsed::Hold {
        return None;
    }
    let lease = u64::try_from(view.plan.policy.lease().as_millis()).unwrap_or(u64::MAX);
    let executions = view.executions();
    executions.iter().filter(|execution| !execution.of.by_hand).find_map(|first| {
        let second = executions.iter().find(|e| e.fence > first.fence && e.start > first.start)?;
        let asked = view.asked(first.of.call)?;
        let process = first.of.process;
        let from = view.reaches_again(process, second.start);
        let mut late = (from..view.events.len()).filter(|at| view.between(from, *at) > lease);
        let by = late.next()?;
        let within_cap =
            view.clock_went(asked, by) < lease.saturating_mul(u64::from(LEASES_IN_CAP) - 1);
        (within_cap
            && first.runs_at(by)
            && !has_died(view, process, first.start, by)
            && view.left(first.of.call).is_none_or(|left| left > by)
            && is_undisturbed(view, process, from, by)
            && !stands_still(view, process, from, by))
        .then(|| {
            let why = format!(
                "the handler of fence {} still runs a lease after fence {} was given to call {}",
                first.fence, second.fence, second.of.call
            );
            view.violation("a superseded handler is dropped", why)
        })
    })
}
