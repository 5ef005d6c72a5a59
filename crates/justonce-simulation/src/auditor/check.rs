//! All rules, in their order.

use super::view::{View, Violation};
use super::{answers, ends, executions, owners, times};
use crate::history::Event;
use crate::plan::Plan;

/// A rule about one operation.
type Rule = fn(&View<'_>) -> Option<Violation>;

/// The rules about one operation: the plainest first, since one defect breaks several.
const RULES: [Rule; 18] = [
    executions::at_most_once,
    executions::nothing_after_an_outcome,
    executions::fences_grow,
    executions::attempts_are_limited,
    answers::an_answer_tells_what_was_said,
    answers::another_request_gets_no_outcome,
    answers::one_outcome,
    answers::what_was_removed_is_gone,
    owners::a_healthy_owner_keeps_its_claim,
    owners::what_did_not_start_is_not_unknown,
    owners::a_result_is_kept,
    owners::a_superseded_handler_is_dropped,
    executions::checkpoints_are_kept,
    times::a_back_off_is_waited_for,
    times::what_is_over_is_not_replayed,
    times::who_waits_is_told,
    ends::what_is_unknown_is_listed,
    ends::an_operation_ends_soon,
];

/// The first promise that a history breaks.
pub(crate) fn violation(plan: &Plan, events: &[Event]) -> Option<Violation> {
    let of_all = executions::no_fence_twice(events).or_else(|| ends::nothing_is_broken(events));
    of_all.or_else(|| {
        plan.operations.iter().enumerate().find_map(|(operation, of)| {
            let view = View { operation, plan: of, near_cache: plan.stack.near_cache, events };
            RULES.iter().find_map(|rule| rule(&view))
        })
    })
}
