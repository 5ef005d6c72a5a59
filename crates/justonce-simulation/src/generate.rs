//! Draws a plan.

use std::num::NonZeroU32;
use std::time::Duration;

use justonce_core::{AfterRetention, BackOff, OnConcurrent, OnFailure, OnLapsed, Policy};

use crate::draw::Draw;
use crate::plan::{
    CallPlan, Calls, Door, HandlerEnd, HandlerPlan, Incident, IncidentKind, Leaves, OperationPlan,
    Plan, Stack, Wish, World,
};

/// Calls and incidents come within this time.
const MOST_MS: u64 = 60_000;
/// The shortest lease: what an engine does about a begin that was lost takes a few seconds.
const LEASES_MS: [u64; 3] = [10_000, 20_000, 30_000];

/// So many leases may a claim last: longer than the longest handler.
pub(crate) const LEASES_IN_CAP: u32 = 8;

/// The plan of a seed.
pub(crate) fn plan(world: World, seed: u64) -> Plan {
    let draw = &Draw::keyed(seed, &[1]);
    let embedded = world == World::Embedded;
    let takeover = !embedded && draw.percent(20);
    let processes = if embedded { 1 } else { draw.between(1 + u64::from(takeover), 3) };
    let mut operations: Vec<_> = (0..draw.between(1, 3)).map(|_| operation(draw)).collect();
    // In some runs little goes wrong: then more is promised.
    let trouble = draw.one_of(0, &[5, 15, 30, 50]);
    let span = draw.between(1_000, MOST_MS);
    let many = draw.between(2, 12);
    let mut calls: Vec<_> =
        (0..many).map(|number| call(draw, number, span, processes, &operations)).collect();
    let mut incidents: Vec<_> = if trouble == 0 && draw.percent(50) {
        Vec::new()
    } else {
        let kinds = [draw.percent(40), draw.percent(40), draw.percent(30), draw.percent(25)];
        (0..draw.below(8))
            .filter_map(|_| incident(draw, span, processes, operations.len(), kinds))
            .collect()
    };
    if embedded {
        // A sweep works on a thread of its own, which no seed can drive.
        incidents.retain(|incident| !matches!(incident.what, IncidentKind::Sweep { .. }));
        incidents.extend((0..draw.below(8)).map(|_| disk_incident(draw, span)));
    }
    if takeover {
        take_over(draw, &mut operations, &mut calls, &mut incidents);
    }
    incidents.sort_by_key(|incident| incident.at);
    Plan {
        seed,
        world,
        stack: Stack {
            calls: if embedded { Calls::Bare } else { store_calls(draw) },
            near_cache: draw.percent(40),
        },
        trouble: if embedded { 0 } else { trouble },
        max_concurrent: draw.one_of(1000, &[1000, 2, 1]),
        settle_timeout: draw.millis(200, 6_000),
        processes: usize::try_from(processes).unwrap_or(1),
        operations,
        calls,
        incidents,
    }
}

/// An operation is taken over while its owner lives: that does not reach the store, or the clock
/// jumps.
fn take_over(
    draw: &Draw,
    operations: &mut [OperationPlan],
    calls: &mut [CallPlan],
    incidents: &mut Vec<Incident>,
) {
    let (Some(operation), [first, second, ..]) = (operations.first_mut(), calls) else { return };
    let rule = draw.one_of(OnLapsed::Rerun, &[OnLapsed::Resume]);
    operation.policy = operation.policy.with_on_lapsed(rule);
    let lease = u64::try_from(operation.policy.lease().as_millis()).unwrap_or(LEASES_MS[0]);
    let at = Duration::from_millis(draw.between(20, lease));
    let lasts = draw.millis(lease, lease * 2);
    let what = if draw.percent(50) {
        IncidentKind::Partition { process: 0, lasts }
    } else {
        IncidentKind::Jump { by: draw.between(lease, lease * 3).cast_signed() }
    };
    incidents.push(Incident { at, what });
    for (call, process) in [(&mut *first, 0), (&mut *second, 1)] {
        call.operation = 0;
        call.process = process;
        call.request = 0;
        call.leaves = Leaves::Never;
        call.handler_timeout = None;
        call.handler.end = HandlerEnd::Ok;
    }
    first.at = Duration::ZERO;
    let parts = draw.between(1, 2);
    first.handler.parts = (0..parts).map(|_| draw.millis(lease, lease * 2)).collect();
    // Then the lease of the first is over, or will be soon.
    second.at = at + draw.millis(0, lease + lease / 2);
    second.on_concurrent = OnConcurrent::Cooperate(Duration::from_secs(40));
}

fn store_calls(draw: &Draw) -> Calls {
    match draw.below(4) {
        0 => Calls::Bare,
        1 => Calls::TimeoutOverRetry(draw.millis(300, 1_500)),
        _ => Calls::RetryOverTimeout(draw.millis(100, 400)),
    }
}

fn operation(draw: &Draw) -> OperationPlan {
    let lease = Duration::from_millis(draw.one_of(LEASES_MS[0], &LEASES_MS[1..]));
    let back_off = BackOff { first: draw.millis(10, 500), max: Duration::from_secs(5) };
    let mut policy = Policy::builder()
        .lease(lease)
        .lease_cap(lease * LEASES_IN_CAP)
        .on_lapsed(draw.one_of(OnLapsed::Hold, &[OnLapsed::Rerun, OnLapsed::Resume]))
        .on_failure(
            draw.one_of(OnFailure::Retry(back_off), &[OnFailure::Release, OnFailure::Replay]),
        );
    if draw.percent(15) {
        policy = policy.max_attempts(NonZeroU32::new(2));
    }
    if draw.percent(20) {
        policy = policy.retention(draw.millis(2_000, 20_000));
    }
    if draw.percent(20) {
        policy = policy.after_retention(AfterRetention::Refuse(draw.millis(1_000, 100_000)));
    }
    OperationPlan { policy: policy.build().unwrap_or_default() }
}

fn call(
    draw: &Draw,
    number: u64,
    span: u64,
    processes: u64,
    operations: &[OperationPlan],
) -> CallPlan {
    let index = |below: u64| usize::try_from(draw.below(below)).unwrap_or_default();
    let operation = index(operations.len() as u64);
    let lease = operations.get(operation).map_or(LEASES_MS[0], |operation| {
        u64::try_from(operation.policy.lease().as_millis()).unwrap_or(LEASES_MS[0])
    });
    let wait = draw.millis(0, 40_000);
    let door = draw.one_of(Door::Run, &[Door::Run, Door::Detached, Door::ByHand]);
    let mut handler = handler(draw, lease);
    if door == Door::ByHand && handler.end == HandlerEnd::Hangs {
        // The engine ends no handler that it does not run.
        handler.end = HandlerEnd::Ok;
    }
    CallPlan {
        number: usize::try_from(number).unwrap_or_default(),
        at: draw.millis(0, if draw.percent(40) { 50 } else { span }),
        process: index(processes),
        operation,
        request: u8::from(draw.percent(15)),
        door,
        on_concurrent: draw.one_of(
            OnConcurrent::Reject,
            &[
                OnConcurrent::Cooperate(wait),
                OnConcurrent::Cooperate(wait),
                OnConcurrent::Wait(wait),
            ],
        ),
        handler_timeout: draw.percent(15).then(|| draw.millis(1, 20_000)),
        handler,
        leaves: match draw.below(10) {
            0..=1 => Leaves::AtAwait(u32::try_from(draw.between(1, 12)).unwrap_or(1)),
            2 => Leaves::After(draw.millis(0, 30_000)),
            _ => Leaves::Never,
        },
    }
}

fn handler(draw: &Draw, lease: u64) -> HandlerPlan {
    // Most are short; some take longer than their lease, so that it must be renewed.
    let longest = draw.one_of(20, &[200, 3_000, lease * 2]);
    let parts = (0..draw.below(4)).map(|_| draw.millis(0, longest)).collect();
    let end = match draw.below(16) {
        0..=7 => HandlerEnd::Ok,
        8..=9 => HandlerEnd::Retryable,
        10 => HandlerEnd::Permanent,
        11..=12 => HandlerEnd::NotExecuted,
        13 => draw.one_of(HandlerEnd::Unknown, &[HandlerEnd::Unclassified]),
        14 => HandlerEnd::Panics,
        _ => HandlerEnd::Hangs,
    };
    HandlerPlan { parts, end }
}

fn incident(
    draw: &Draw,
    span: u64,
    processes: u64,
    operations: usize,
    [crashes, stalls, partitions, jumps]: [bool; 4],
) -> Option<Incident> {
    let process = usize::try_from(draw.below(processes)).unwrap_or_default();
    let operation = usize::try_from(draw.below(operations as u64)).unwrap_or_default();
    let at = draw.millis(0, span + span / 2);
    let lasts = draw.millis(1, 45_000);
    let what = match draw.below(10) {
        0..=1 if crashes => IncidentKind::Crash { process, down_for: draw.millis(1, 20_000) },
        2..=3 if stalls => IncidentKind::Stall { process, lasts },
        4 if partitions => IncidentKind::Partition { process, lasts },
        5 if jumps => {
            let by = draw.between(100, draw.one_of(5_000, &[40_000, 200_000])).cast_signed();
            IncidentKind::Jump { by: if draw.percent(50) { by } else { -by } }
        }
        6 => IncidentKind::Sweep { process },
        7..=9 => {
            let wish = draw
                .one_of(Wish::Erase, &[Wish::Expire, Wish::Complete, Wish::Fail, Wish::Release]);
            IncidentKind::Operator { process, operation, wish }
        }
        _ => return None,
    };
    Some(Incident { at, what })
}

/// What happens only where there is a disk.
fn disk_incident(draw: &Draw, span: u64) -> Incident {
    let at = draw.millis(0, span + span / 2);
    let down_for = draw.millis(1, 5_000);
    let what = match draw.below(10) {
        0..=2 => IncidentKind::Apply,
        3 => IncidentKind::DiskFails { down_for },
        4..=5 => IncidentKind::Operator { process: 0, operation: 0, wish: Wish::Erase },
        _ => IncidentKind::Crash { process: 0, down_for },
    };
    Incident { at, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_plan() {
        for world in [World::Memory, World::Embedded] {
            let text = |seed| format!("{:?}", plan(world, seed));
            assert_eq!(text(3), text(3));
            assert_ne!(text(3), text(4));
        }
    }

    #[test]
    fn operations_have_the_policy_that_was_drawn() {
        let draw = Draw::keyed(1, &[]);
        let drawn: Vec<_> = (0..200).map(|_| operation(&draw).policy).collect();
        assert!(drawn.iter().all(|policy| policy.lease() >= Duration::from_secs(10)));
        assert!(drawn.iter().any(|policy| policy.on_lapsed() == OnLapsed::Resume));
        assert!(drawn.iter().any(|policy| policy.retention() < Duration::from_secs(60)));
    }
}
