//! Every operation can still end.

use super::view::{Execution, View, Violation};
use crate::history::{Answer, Event, Said, What};
use crate::last_calls::FIRST_LAST_CALL;

/// Longer than any back-off of a run, and what the pauses of the last calls add.
const BACK_OFF_MS: u64 = 6_000;

/// Nothing happened that must not happen in any run.
pub(crate) fn nothing_is_broken(events: &[Event]) -> Option<Violation> {
    events.iter().find_map(|event| match &event.what {
        What::Broken { why } => {
            Some(Violation { rule: "every call ends", operation: None, why: why.clone() })
        }
        _ => None,
    })
}

/// When nothing goes wrong any more and all were answered, an operation ends soon: sooner than a
/// lease where nobody may hold a claim, and when all leases are over elsewhere.
pub(crate) fn an_operation_ends_soon(view: &View<'_>) -> Option<Violation> {
    let all_answered = view.events.iter().position(|e| e.what == What::AllAnswered)?;
    let answers = view.answers();
    let last = answers.iter().filter(|answered| answered.asked > all_answered);
    let first_end = last
        .clone()
        .find(|answered| !matches!(answered.answer, Answer::Busy { .. } | Answer::Mismatch));
    let end = first_end.map_or(view.events.len() - 1, |answered| answered.at);
    // A detached call goes on when its caller has left, and may begin to execute even now.
    let executions = view.executions();
    let detached = executions
        .iter()
        .filter(|execution| execution.of.call <= FIRST_LAST_CALL)
        .filter_map(Execution::end)
        .filter(|at| *at < end)
        .max();
    let took = view.between(detached.unwrap_or(0).max(all_answered), end);
    let lease = u64::try_from(view.plan.policy.lease().as_millis()).unwrap_or(u64::MAX);
    let limit =
        if nobody_holds(view) { lease / 10 * 8 } else { lease + jumped_back(view) + BACK_OFF_MS };
    (took > limit).then(|| {
        let why = format!(
            "all callers were answered, and it took {took} ms until the operation ended; {limit} \
             ms are enough"
        );
        view.violation("an operation ends soon", why)
    })
}

/// Whether every claim that was executed was given up by its owner in a way that it heard of.
fn nobody_holds(view: &View<'_>) -> bool {
    let disturbed = view.events.iter().any(|event| {
        matches!(
            event.what,
            What::Crashed { .. }
                | What::Partitioned { .. }
                | What::Stalled { .. }
                | What::Jumped { .. }
        )
    });
    let all_said = view.executions().iter().all(|execution| {
        !matches!(
            execution.said,
            None | Some((_, Said::Unknown | Said::Panicked | Said::Unclassified(_)))
        )
    });
    !disturbed && all_said
}

fn jumped_back(view: &View<'_>) -> u64 {
    let jumps = view.events.iter().filter_map(|event| match event.what {
        What::Jumped { by } if by < 0 => Some(by.unsigned_abs()),
        _ => None,
    });
    jumps.sum()
}

/// What a caller is told to be unknown is listed as unknown.
pub(crate) fn what_is_unknown_is_listed(view: &View<'_>) -> Option<Violation> {
    let mut told = None;
    for event in view.events {
        match &event.what {
            What::Answered { of, answer: Answer::Unknown { fence, .. } }
                if of.operation == view.operation =>
            {
                told = Some((of.call, *fence));
            }
            What::Listed { unknown } => {
                if let Some((call, fence)) = told.take()
                    && !unknown.contains(&view.operation)
                    && view.events.iter().any(|e| is_last_call(&e.what, call))
                {
                    let why = format!(
                        "call {call} was told that fence {fence} is unknown, and it is not listed"
                    );
                    return Some(view.violation("what is unknown is listed", why));
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether this is the answer of one of the last calls: nobody else changes anything then.
fn is_last_call(what: &What, call: usize) -> bool {
    call > FIRST_LAST_CALL && matches!(what, What::Answered { of, .. } if of.call == call)
}
