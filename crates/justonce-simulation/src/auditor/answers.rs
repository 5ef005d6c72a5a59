//! Which answers a caller may get.

use justonce_core::{AfterRetention, UnknownReason};

use super::view::{Answered, Execution, NEAR_MS, View, Violation, call_in, fence_in};
use crate::history::{Answer, Obeyed, OrderKind, Said, What};

/// An answer tells what the handler of this very call said, or what another said before.
pub(crate) fn an_answer_tells_what_was_said(view: &View<'_>) -> Option<Violation> {
    let executions = view.executions();
    view.answers().into_iter().find_map(|answered| {
        let own = executions.iter().find(|e| e.of == answered.of && e.start < answered.at);
        if is_right(view, &answered, own) {
            return None;
        }
        let said = own.and_then(|own| own.said_by(answered.at));
        let why = format!(
            "call {} was answered {:?}; its handler {}",
            answered.of.call,
            answered.answer,
            match (own, said) {
                (None, _) => "was not started".to_owned(),
                (Some(_), None) => "said nothing".to_owned(),
                (Some(_), Some(said)) => format!("said {said:?}"),
            }
        );
        Some(view.violation("an answer tells what was said", why))
    })
}

fn is_right(view: &View<'_>, answered: &Answered<'_>, own: Option<&Execution>) -> bool {
    let said = own.and_then(|own| own.said_by(answered.at));
    match answered.answer {
        Answer::Executed(text) => said == Some(&Said::Ok(text.clone())),
        Answer::Replayed(text) => own.is_none() && was_given(view, text, answered.at, true),
        Answer::FailedBefore(text) => was_given(view, text, answered.at, false),
        Answer::Failed(text) => match said {
            Some(Said::Retryable(other) | Said::Permanent(other) | Said::Unclassified(other)) => {
                text == other
            }
            _ => false,
        },
        Answer::Released => said == Some(&Said::NotExecuted),
        Answer::Busy { .. } | Answer::NothingExecuted(_) | Answer::Overloaded => own.is_none(),
        Answer::Mismatch => own.is_none() && another_request_was_made(view, answered),
        Answer::Expired => {
            own.is_none() && view.plan.policy.after_retention() != AfterRetention::New
        }
        // Also to one whose claim was lost: so the operation is now.
        Answer::Unknown { .. } => true,
        Answer::Superseded(None) => own.is_some(),
        Answer::Superseded(Some(text)) => own.is_some() && was_given(view, text, answered.at, true),
        Answer::Abandoned(UnknownReason::TimedOut) => own.is_some_and(|own| own.cut.is_some()),
        Answer::Abandoned(_) => {
            matches!(said, Some(Said::Unknown | Said::Unclassified(_)))
        }
        Answer::Unclassified(text) => said == Some(&Said::Unclassified(text.clone())),
        Answer::NotStored(_) => own.is_some(),
        Answer::Panicked => said == Some(&Said::Panicked),
        Answer::Stopped => false,
    }
}

/// Whether a handler or an operator gave this outcome, or this failure.
fn was_given(view: &View<'_>, text: &str, by: usize, outcome: bool) -> bool {
    let said = view.executions().iter().any(|execution| match execution.said_by(by) {
        Some(Said::Ok(other)) => outcome && other == text,
        Some(Said::Retryable(other) | Said::Permanent(other) | Said::Unclassified(other)) => {
            !outcome && other == text
        }
        _ => false,
    });
    let ordered = view.orders().any(|(at, order)| match &order.kind {
        OrderKind::Complete(other) => outcome && at < by && other == text,
        OrderKind::Fail(other) => !outcome && at < by && other == text,
        _ => false,
    });
    said || ordered
}

fn another_request_was_made(view: &View<'_>, answered: &Answered<'_>) -> bool {
    view.within(0, answered.at).any(|what| match what {
        What::Asked { of, .. } => {
            of.operation == view.operation && of.request != answered.of.request
        }
        _ => false,
    }) || view.events.first().is_some_and(|first| match &first.what {
        What::Asked { of, .. } => {
            of.operation == view.operation && of.request != answered.of.request
        }
        _ => false,
    })
}

/// Whoever asked for something else gets no outcome.
pub(crate) fn another_request_gets_no_outcome(view: &View<'_>) -> Option<Violation> {
    let executions = view.executions();
    view.answers().into_iter().find_map(|answered| {
        let text = answered.answer.reply()?;
        let call = call_in(text).or_else(|| {
            let fence = fence_in(text)?;
            executions.iter().find(|e| e.fence == fence).map(|e| e.of.call)
        })?;
        let made_for = view.request(call)?;
        (made_for != answered.of.request).then(|| {
            let why = format!(
                "call {} brought request {} and got {text:?}, made for request {made_for}",
                answered.of.call, answered.of.request
            );
            view.violation("another request gets no outcome", why)
        })
    })
}

/// All callers are given the same outcome, as long as nothing removed it.
pub(crate) fn one_outcome(view: &View<'_>) -> Option<Violation> {
    let answers = view.answers();
    let given: Vec<_> = answers
        .iter()
        .filter_map(|answered| {
            let text = answered.answer.reply()?;
            Some((fence_in(text)?, text, answered.at, answered.of.call))
        })
        .collect();
    given.iter().enumerate().find_map(|(at, (fence, text, place, call))| {
        given.iter().skip(at + 1).find_map(|(other_fence, other, other_place, other_call)| {
            let (older, later) = ((*fence).min(*other_fence), (*place).max(*other_place));
            if text == other || (fence != other_fence && view.may_be_gone(older, later)) {
                return None;
            }
            let why = format!("call {call} was given {text:?}, and call {other_call} {other:?}");
            Some(view.violation("one outcome", why))
        })
    })
}

/// What was expired or erased is not replayed: at once in the process that did it, and after the
/// age of a near cache in others. Neither is what an execution has replaced since.
pub(crate) fn what_was_removed_is_gone(view: &View<'_>) -> Option<Violation> {
    let executions = view.executions();
    view.answers().into_iter().find_map(|answered| {
        let text = answered.answer.reply()?;
        let fence = fence_in(text)?;
        let removed = view.events.iter().enumerate().find_map(|(at, event)| match &event.what {
            What::Obeyed { order, result: Obeyed::Done }
                if at < answered.asked
                    && order.operation == view.operation
                    && order.fence == fence
                    && matches!(order.kind, OrderKind::Expire | OrderKind::Erase) =>
            {
                let here = (order.process, order.life) == (answered.of.process, answered.of.life);
                Some((at, here))
            }
            _ => None,
        });
        let replaced = executions
            .iter()
            .find(|e| e.fence > fence && e.start < answered.asked)
            .map(|e| (e.start, false));
        let (at, here) = removed.or(replaced)?;
        let late = view.between(at, answered.asked) > NEAR_MS;
        (here || !view.near_cache || late).then(|| {
            let why = format!(
                "call {} asked after the record of {text:?} was gone, and was given it",
                answered.of.call
            );
            view.violation("what was removed is gone", why)
        })
    })
}
