//! What the auditor sees of one operation.

use std::time::Duration;

use justonce_core::{Fence, OnLapsed};

use crate::history::{Answer, Event, Order, OrderKind, Said, Subject, What};
use crate::plan::OperationPlan;

/// For so long a near cache replays what was removed elsewhere: its age, and the way of an answer.
pub(crate) const NEAR_MS: u64 = 5_500;

/// One operation, and everything that happened to it or to all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) operation: usize,
    pub(crate) plan: &'a OperationPlan,
    /// Whether processes replay what they remember, for a while.
    pub(crate) near_cache: bool,
    /// The whole history: an event is named by its place in it.
    pub(crate) events: &'a [Event],
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule that was broken.
    pub rule: &'static str,
    /// The operation, unless it concerns all.
    pub operation: Option<usize>,
    /// What was seen.
    pub why: String,
}

/// One start of a handler.
#[derive(Clone, Debug)]
pub(crate) struct Execution {
    pub(crate) of: Subject,
    pub(crate) fence: Fence,
    /// The place of its start in the history.
    pub(crate) start: usize,
    pub(crate) attempt: u32,
    pub(crate) checkpoint: u32,
    /// What it said, and where.
    pub(crate) said: Option<(usize, Said)>,
    /// Where it was dropped.
    pub(crate) cut: Option<usize>,
}

impl Execution {
    /// Where it ended, if it did.
    pub(crate) fn end(&self) -> Option<usize> {
        self.said.as_ref().map(|(at, _)| *at).or(self.cut)
    }

    /// Whether it had not ended before this place.
    pub(crate) fn runs_at(&self, place: usize) -> bool {
        self.start < place && self.end().is_none_or(|end| end >= place)
    }

    /// What it had said by then.
    pub(crate) fn said_by(&self, place: usize) -> Option<&Said> {
        self.said.as_ref().filter(|(at, _)| *at < place).map(|(_, said)| said)
    }
}

/// The answer of a call.
#[derive(Clone, Debug)]
pub(crate) struct Answered<'a> {
    pub(crate) of: Subject,
    pub(crate) asked: usize,
    pub(crate) at: usize,
    pub(crate) answer: &'a Answer,
}

impl<'a> View<'a> {
    pub(crate) fn violation(&self, rule: &'static str, why: String) -> Violation {
        Violation { rule, operation: Some(self.operation), why }
    }

    /// The events that are about this operation, or about all, with their places.
    fn own(&self) -> impl Iterator<Item = (usize, &'a Event)> + use<'a> {
        let operation = self.operation;
        let concerns =
            move |event: &Event| event.what.operation().is_none_or(|other| other == operation);
        self.events.iter().enumerate().filter(move |(_, event)| concerns(event))
    }

    /// The starts of its handlers, in the order of their fences.
    pub(crate) fn executions(&self) -> Vec<Execution> {
        let mut found: Vec<Execution> = Vec::new();
        for (at, event) in self.own() {
            let of_claim = |of: &Subject, fence: &Fence, execution: &&mut Execution| {
                execution.of == *of && execution.fence == *fence
            };
            match &event.what {
                What::Started { of, fence, attempt, checkpoint } => found.push(Execution {
                    of: *of,
                    fence: *fence,
                    start: at,
                    attempt: *attempt,
                    checkpoint: *checkpoint,
                    said: None,
                    cut: None,
                }),
                What::Said { of, fence, said } => {
                    let execution = found.iter_mut().find(|e| of_claim(of, fence, e));
                    if let Some(execution) = execution {
                        execution.said = Some((at, said.clone()));
                    }
                }
                What::Cut { of, fence } => {
                    if let Some(execution) = found.iter_mut().find(|e| of_claim(of, fence, e)) {
                        execution.cut = Some(at);
                    }
                }
                _ => {}
            }
        }
        found.sort_by_key(|execution| execution.fence);
        found
    }

    /// All answers, in the order in which they were given.
    pub(crate) fn answers(&self) -> Vec<Answered<'a>> {
        self.own()
            .filter_map(|(at, event)| match &event.what {
                What::Answered { of, answer } => {
                    let asked = self.asked(of.call)?;
                    Some(Answered { of: *of, asked, at, answer })
                }
                _ => None,
            })
            .collect()
    }

    /// Where a call was asked.
    pub(crate) fn asked(&self, call: usize) -> Option<usize> {
        self.own().find_map(|(at, event)| match &event.what {
            What::Asked { of, .. } if of.call == call => Some(at),
            _ => None,
        })
    }

    /// Which of two requests a call brought.
    pub(crate) fn request(&self, call: usize) -> Option<u8> {
        self.own().find_map(|(_, event)| match &event.what {
            What::Asked { of, .. } if of.call == call => Some(of.request),
            _ => None,
        })
    }

    /// Where its caller left.
    pub(crate) fn left(&self, call: usize) -> Option<usize> {
        self.own().find_map(|(at, event)| match &event.what {
            What::Left { of } if of.call == call => Some(at),
            _ => None,
        })
    }

    /// What operators ordered.
    pub(crate) fn orders(&self) -> impl Iterator<Item = (usize, &'a Order)> + use<'a> {
        self.own().filter_map(|(at, event)| match &event.what {
            What::Operator { order } => Some((at, order)),
            _ => None,
        })
    }

    /// Milliseconds between two places.
    pub(crate) fn between(&self, from: usize, to: usize) -> u64 {
        self.at(to).saturating_sub(self.at(from))
    }

    /// When something happened, in milliseconds since the run began.
    pub(crate) fn at(&self, place: usize) -> u64 {
        self.events.get(place).map_or(u64::MAX, |event| event.at)
    }

    /// What happened between two places, these excluded.
    pub(crate) fn within(
        &self,
        from: usize,
        to: usize,
    ) -> impl Iterator<Item = &'a What> + use<'a> {
        let many = to.saturating_sub(from + 1);
        self.events.iter().skip(from + 1).take(many).map(|event| &event.what)
    }

    /// The last place at which a process reached the store again, if that was after a place.
    pub(crate) fn reaches_again(&self, process: usize, after: usize) -> usize {
        let reaches = |event: &Event| event.what == What::Partitioned { process, cut: false };
        self.events.iter().rposition(reaches).map_or(after, |at| at.max(after))
    }

    /// By how much the store's clock went forward between two places, at most.
    pub(crate) fn clock_went(&self, from: usize, to: usize) -> u64 {
        let jumps: u64 = self
            .within(from, to)
            .filter_map(|what| match what {
                What::Jumped { by } => u64::try_from(*by).ok(),
                _ => None,
            })
            .sum();
        self.between(from, to).saturating_add(jumps)
    }

    /// Whether the retention of what ended under this fence may have been over at a place.
    pub(crate) fn may_be_forgotten(&self, fence: Fence, by: usize) -> bool {
        let retention = self.plan.policy.retention();
        let ended = self.ended_at(fence).filter(|ended| *ended < by);
        ended.is_some_and(|ended| Duration::from_millis(self.clock_went(ended, by)) >= retention)
    }

    /// The first moment at which it may have been stored how a claim ended.
    fn ended_at(&self, fence: Fence) -> Option<usize> {
        let executions = self.executions();
        let said = executions
            .iter()
            .filter(|execution| execution.fence == fence)
            .filter_map(|execution| execution.said.as_ref())
            .filter(|(_, said)| self.begins_a_retention(said))
            .map(|(at, _)| *at);
        let ordered = self.orders().filter(|(_, order)| order.fence == fence).map(|(at, _)| at);
        said.chain(ordered).min()
    }

    /// Whether what a handler said has a retention: what is unknown has none, nor has what is left
    /// for others to take over.
    fn begins_a_retention(&self, said: &Said) -> bool {
        match said {
            Said::Unknown | Said::Panicked => false,
            Said::Unclassified(_) => self.plan.policy.on_lapsed() != OnLapsed::Hold,
            Said::Ok(_) | Said::Retryable(_) | Said::Permanent(_) | Said::NotExecuted => true,
        }
    }

    /// Whether the store's clock went as others do.
    pub(crate) fn clock_is_steady(&self) -> bool {
        !self.events.iter().any(|event| matches!(event.what, What::Jumped { .. }))
    }

    /// Whether an operator ordered the end of what a claim left, before a place.
    pub(crate) fn was_removed(&self, fence: Fence, by: usize) -> bool {
        self.orders().any(|(at, order)| {
            at < by
                && order.fence == fence
                && matches!(order.kind, OrderKind::Expire | OrderKind::Erase)
        })
    }

    /// Whether what a claim left behind may rightly be gone by then.
    pub(crate) fn may_be_gone(&self, fence: Fence, by: usize) -> bool {
        self.was_removed(fence, by) || self.may_be_forgotten(fence, by)
    }

    /// Whether an answer may come from a near cache that remembers what an execution has replaced.
    pub(crate) fn may_be_near(&self, answered: &Answered<'_>, execution: &Execution) -> bool {
        let older = answered.answer.reply().and_then(fence_in).is_some_and(|f| f < execution.fence);
        let soon = self.between(execution.start, answered.asked) <= NEAR_MS;
        self.near_cache && older && soon
    }

    /// Whether an operation may rightly be executed again after an execution of it.
    pub(crate) fn frees(&self, execution: &Execution, by: usize) -> bool {
        let said = match execution.said_by(by) {
            Some(Said::NotExecuted) => true,
            Some(Said::Retryable(_)) => self.plan.retries(),
            _ => false,
        };
        let released = self.orders().any(|(at, order)| {
            at < by && order.fence == execution.fence && order.kind == OrderKind::Release
        });
        said || released || self.may_be_gone(execution.fence, by)
    }
}

/// The fence in the text of an outcome: every outcome says under which claim it was made.
pub(crate) fn fence_in(text: &str) -> Option<Fence> {
    text.rsplit(' ').next()?.parse().ok().map(Fence::new)
}

/// The call in the text of an outcome; nothing if an operator gave it.
pub(crate) fn call_in(text: &str) -> Option<usize> {
    text.strip_prefix("call ")?.split(' ').next()?.parse().ok()
}
