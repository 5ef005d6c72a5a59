//! Each rule has a history that keeps it and one that breaks it.

use std::time::Duration;

use justonce_core::{Fence, OnLapsed, Policy, PolicyBuilder, UnknownReason};

use super::view::{View, Violation};
use super::{answers, ends, executions, owners, times};
use crate::generate::LEASES_IN_CAP;
use crate::history::{Answer, Event, Obeyed, Order, OrderKind, Said, Subject, What};
use crate::plan::OperationPlan;

const LEASE_MS: u64 = 10_000;

/// A history in the making.
struct Story {
    on_lapsed: OnLapsed,
    /// What else is special about the policy.
    policy: fn(PolicyBuilder) -> PolicyBuilder,
    near_cache: bool,
    at: u64,
    events: Vec<Event>,
}

fn story(on_lapsed: OnLapsed) -> Story {
    Story { on_lapsed, policy: |policy| policy, near_cache: false, at: 0, events: Vec::new() }
}

fn subject(call: usize) -> Subject {
    // The number of a call says in which process it is, too.
    Subject { call, process: call % 2, life: 0, operation: 0, request: 0, by_hand: false }
}

fn done(call: usize, fence: u64) -> String {
    format!("call {call} with fence {fence}")
}

fn order(process: usize, fence: u64, kind: OrderKind) -> Order {
    Order { process, life: 0, operation: 0, fence: Fence::new(fence), kind }
}

fn unknown(fence: u64) -> Answer {
    Answer::Unknown { fence: Fence::new(fence), reason: UnknownReason::Lapsed }
}

impl Story {
    fn add(mut self, what: What) -> Self {
        self.events.push(Event { at: self.at, store_at: 0, what });
        self
    }

    fn later(mut self, millis: u64) -> Self {
        self.at += millis;
        self
    }

    fn asked(self, call: usize) -> Self {
        self.add(What::Asked { of: subject(call), how: String::new() })
    }

    fn started(self, call: usize, fence: u64) -> Self {
        let fence = Fence::new(fence);
        self.add(What::Started { of: subject(call), fence, attempt: 1, checkpoint: 0 })
    }

    fn said(self, call: usize, fence: u64, said: Said) -> Self {
        self.add(What::Said { of: subject(call), fence: Fence::new(fence), said })
    }

    fn cut(self, call: usize, fence: u64) -> Self {
        self.add(What::Cut { of: subject(call), fence: Fence::new(fence) })
    }

    fn answered(self, call: usize, answer: Answer) -> Self {
        self.add(What::Answered { of: subject(call), answer })
    }

    /// A call that executes and is answered.
    fn executed(self, call: usize, fence: u64) -> Self {
        let text = done(call, fence);
        self.asked(call)
            .started(call, fence)
            .said(call, fence, Said::Ok(text.clone()))
            .answered(call, Answer::Executed(text))
    }

    /// A call that gets what another did.
    fn replayed(self, call: usize, text: String) -> Self {
        self.asked(call).answered(call, Answer::Replayed(text))
    }

    fn removed(self, process: usize, fence: u64) -> Self {
        let order = order(process, fence, OrderKind::Erase);
        let result = Obeyed::Done;
        self.add(What::Operator { order: order.clone() }).add(What::Obeyed { order, result })
    }

    fn breaks(&self, rule: fn(&View<'_>) -> Option<Violation>) -> bool {
        let lease = Duration::from_millis(LEASE_MS);
        let policy = Policy::builder()
            .lease(lease)
            .lease_cap(lease * LEASES_IN_CAP)
            .on_lapsed(self.on_lapsed);
        let policy = (self.policy)(policy).build().unwrap();
        let plan = OperationPlan { policy };
        let view =
            View { operation: 0, plan: &plan, near_cache: self.near_cache, events: &self.events };
        rule(&view).is_some()
    }
}

#[test]
fn a_handler_that_starts_twice_under_hold_is_found() {
    let first = |said| story(OnLapsed::Hold).asked(0).started(0, 1).said(0, 1, said).asked(1);
    let freed = first(Said::NotExecuted).started(1, 2);
    assert!(!freed.breaks(executions::at_most_once));
    assert!(first(Said::Unknown).started(1, 2).breaks(executions::at_most_once));
    let released = first(Said::Unknown)
        .add(What::Operator { order: order(0, 1, OrderKind::Release) })
        .started(1, 2);
    assert!(!released.breaks(executions::at_most_once));
}

#[test]
fn an_unknown_operation_that_time_alone_freed_is_found() {
    let later = |said| {
        let policy: fn(PolicyBuilder) -> _ = |policy| policy.retention(Duration::from_secs(1));
        let story = Story { policy, ..story(OnLapsed::Hold) };
        let story = story.asked(0).started(0, 1).said(0, 1, said).later(60_000);
        story.asked(1).started(1, 2).breaks(executions::at_most_once)
    };
    assert!(!later(Said::Ok(done(0, 1))), "its retention is over");
    for said in [Said::Unknown, Said::Panicked, Said::Unclassified(String::new())] {
        assert!(later(said.clone()), "{said:?} has no retention");
    }
}

#[test]
fn more_attempts_than_are_allowed_are_found() {
    let attempt = |attempt| {
        let (of, fence) = (subject(0), Fence::new(1));
        let started = What::Started { of, fence, attempt, checkpoint: 0 };
        story(OnLapsed::Rerun).asked(0).add(started).breaks(executions::attempts_are_limited)
    };
    assert!(!attempt(10));
    assert!(attempt(11));
}

#[test]
fn a_retry_before_its_back_off_is_over_is_found() {
    let retried = |after, jumps| {
        let text = done(0, 1);
        let story = story(OnLapsed::Rerun).asked(0).started(0, 1);
        let story = story.said(0, 1, Said::Retryable(text.clone()));
        let story = story.answered(0, Answer::Failed(text)).later(after);
        let story = if jumps { story.add(What::Jumped { by: 500 }) } else { story };
        story.asked(1).started(1, 2).breaks(times::a_back_off_is_waited_for)
    };
    assert!(retried(99, false));
    assert!(!retried(100, false));
    assert!(!retried(99, true));
}

#[test]
fn an_outcome_that_is_replayed_for_too_long_is_found() {
    let replayed = |after, near_cache| {
        let policy: fn(PolicyBuilder) -> _ = |policy| policy.retention(Duration::from_secs(1));
        let story = Story { policy, near_cache, ..story(OnLapsed::Hold) };
        let story = story.executed(0, 1).later(after).replayed(1, done(0, 1));
        story.breaks(times::what_is_over_is_not_replayed)
    };
    assert!(!replayed(1_000, false));
    assert!(replayed(1_001, false));
    assert!(!replayed(1_001, true), "a near cache remembers it");
    assert!(replayed(9_000, true), "but not for so long");
}

#[test]
fn a_duplicate_that_is_not_told_is_found() {
    let told = |after, disturbed: Option<What>| {
        let policy: fn(PolicyBuilder) -> _ = |policy| policy.lease(Duration::from_secs(30));
        let story = Story { policy, ..story(OnLapsed::Hold) };
        let story = story.asked(1).executed(0, 1).later(after);
        let story = disturbed.into_iter().fold(story, Story::add);
        let story = story.answered(1, Answer::Replayed(done(0, 1)));
        story.breaks(times::who_waits_is_told)
    };
    assert!(!told(24_000, None));
    assert!(told(24_001, None));
    assert!(!told(24_001, Some(What::Stalled { process: 1, stands: true })));
    assert!(told(24_001, Some(What::Stalled { process: 0, stands: true })), "another process");
}

#[test]
fn an_execution_after_an_outcome_is_found() {
    let again = story(OnLapsed::Rerun).executed(0, 1).asked(1).started(1, 2);
    assert!(again.breaks(executions::nothing_after_an_outcome));
    let erased = story(OnLapsed::Rerun).executed(0, 1).removed(0, 1).asked(1).started(1, 2);
    assert!(!erased.breaks(executions::nothing_after_an_outcome));
}

#[test]
fn fences_that_do_not_grow_or_come_again_are_found() {
    let grows = story(OnLapsed::Rerun).executed(0, 2).removed(0, 2).executed(1, 3);
    assert!(!grows.breaks(executions::fences_grow));
    assert!(executions::no_fence_twice(&grows.events).is_none());
    let shrinks = story(OnLapsed::Rerun).executed(0, 2).removed(0, 2).executed(1, 1);
    assert!(shrinks.breaks(executions::fences_grow));
    let same = story(OnLapsed::Rerun).executed(0, 2).executed(1, 2);
    assert!(executions::no_fence_twice(&same.events).is_some());
}

#[test]
fn a_checkpoint_that_is_lost_is_found() {
    let saved = |checkpoint| {
        let fence = Fence::new(2);
        story(OnLapsed::Resume)
            .asked(0)
            .started(0, 1)
            .add(What::Saved { of: subject(0), fence: Fence::new(1), number: 3 })
            .cut(0, 1)
            .asked(1)
            .add(What::Started { of: subject(1), fence, attempt: 2, checkpoint })
    };
    assert!(!saved(3).breaks(executions::checkpoints_are_kept));
    assert!(saved(2).breaks(executions::checkpoints_are_kept));
    let failed = |said| saved(2).said(0, 1, said).breaks(executions::checkpoints_are_kept);
    assert!(failed(Said::Retryable(done(0, 1))), "a failure keeps it");
    assert!(!failed(Said::NotExecuted), "a release of the first attempt does not");
}

#[test]
fn answers_that_nobody_said_are_found() {
    let rule = answers::an_answer_tells_what_was_said;
    let asked = || story(OnLapsed::Hold).asked(0);
    assert!(!story(OnLapsed::Hold).executed(0, 1).breaks(rule));
    assert!(asked().answered(0, Answer::Executed(done(0, 1))).breaks(rule));
    assert!(asked().answered(0, Answer::Replayed(done(7, 1))).breaks(rule));
    assert!(asked().answered(0, Answer::Released).breaks(rule));
    assert!(asked().answered(0, Answer::Mismatch).breaks(rule));
    assert!(asked().answered(0, Answer::Expired).breaks(rule));
    assert!(asked().answered(0, Answer::Stopped).breaks(rule));
    let nothing = Answer::NothingExecuted(String::new());
    assert!(!asked().answered(0, nothing.clone()).breaks(rule));
    assert!(asked().started(0, 1).answered(0, nothing).breaks(rule));
}

#[test]
fn an_outcome_for_another_request_is_found() {
    let rule = answers::another_request_gets_no_outcome;
    let other = Subject { request: 1, ..subject(1) };
    let replay = |of| {
        let answer = Answer::Replayed(done(0, 1));
        story(OnLapsed::Hold)
            .executed(0, 1)
            .add(What::Asked { of, how: String::new() })
            .add(What::Answered { of, answer })
    };
    assert!(!replay(subject(1)).breaks(rule));
    assert!(replay(other).breaks(rule));
}

#[test]
fn two_outcomes_are_found() {
    let two = |removed: bool| {
        let story = story(OnLapsed::Rerun).executed(0, 1);
        let story = if removed { story.removed(0, 1) } else { story };
        story.executed(1, 2)
    };
    assert!(two(false).breaks(answers::one_outcome));
    assert!(!two(true).breaks(answers::one_outcome));
}

#[test]
fn what_is_replayed_after_it_was_erased_is_found() {
    let rule = answers::what_was_removed_is_gone;
    let replay = |near_cache, caller, after| {
        let story = Story { near_cache, ..story(OnLapsed::Hold) };
        let story = story.executed(0, 1).removed(0, 1).later(after);
        story.replayed(caller, done(0, 1))
    };
    assert!(replay(true, 2, 0).breaks(rule), "in the same process");
    assert!(!replay(true, 1, 3_000).breaks(rule), "a near cache elsewhere remembers it");
    assert!(replay(true, 1, 9_000).breaks(rule), "but not for so long");
    assert!(replay(false, 1, 0).breaks(rule), "and not where there is none");
}

#[test]
fn a_claim_that_lapses_in_good_health_is_found() {
    let rule = owners::a_healthy_owner_keeps_its_claim;
    let running = || story(OnLapsed::Hold).asked(0).started(0, 1).later(LEASE_MS * 2);
    let told = |story: Story| story.asked(1).answered(1, unknown(1)).breaks(rule);
    assert!(told(running()));
    assert!(!told(running().add(What::Crashed { process: 0 })));
    assert!(told(running().add(What::Crashed { process: 1 })), "it was another process");
    assert!(!told(running().add(What::Jumped { by: 60_000 })));
    assert!(!told(running().add(What::Partitioned { process: 0, cut: true })));
    assert!(!told(running().cut(0, 1)));
    assert!(told(running().add(What::Stalled { process: 0, stands: true })));
    let taken = running().asked(1).started(1, 2);
    assert!(taken.breaks(rule));
}

#[test]
fn a_claim_that_nobody_used_and_that_is_unknown_is_found() {
    let rule = owners::what_did_not_start_is_not_unknown;
    let told = |story: Story| story.asked(1).answered(1, unknown(1)).breaks(rule);
    assert!(told(story(OnLapsed::Hold).asked(0)));
    assert!(!told(story(OnLapsed::Hold).asked(0).started(0, 1)));
    assert!(!told(story(OnLapsed::Hold).asked(0).add(What::Crashed { process: 0 })));
}

#[test]
fn a_result_that_is_lost_is_found() {
    let rule = owners::a_result_is_kept;
    let left = || {
        story(OnLapsed::Rerun)
            .asked(0)
            .started(0, 1)
            .said(0, 1, Said::Ok(done(0, 1)))
            .add(What::Left { of: subject(0) })
    };
    assert!(!left().replayed(1, done(0, 1)).breaks(rule));
    assert!(left().executed(1, 2).breaks(rule));
    assert!(!left().add(What::Crashed { process: 0 }).executed(1, 2).breaks(rule));
    let complete = What::Operator { order: order(1, 1, OrderKind::Complete(String::new())) };
    let told = left().asked(1).answered(1, unknown(1)).add(complete);
    assert!(told.replayed(3, "operator with fence 1".to_owned()).breaks(rule));
    let replaced = |near_cache, after| {
        let story = Story { near_cache, ..story(OnLapsed::Rerun) };
        let jumped = story.executed(1, 1).add(What::Jumped { by: 600_000 });
        jumped.executed(0, 2).later(after).replayed(3, done(1, 1))
    };
    assert!(!replaced(true, 3_000).breaks(rule), "a near cache remembers what was forgotten");
    assert!(replaced(true, 9_000).breaks(rule), "but not for so long");
    assert!(replaced(false, 0).breaks(rule), "and not where there is none");
}

#[test]
fn a_handler_that_goes_on_without_its_claim_is_found() {
    let rule = owners::a_superseded_handler_is_dropped;
    let taken = || story(OnLapsed::Rerun).asked(0).started(0, 1).later(LEASE_MS).executed(1, 2);
    let end = |story: Story| story.later(LEASE_MS + 1).add(What::FaultsEnded);
    assert!(end(taken()).breaks(rule));
    assert!(!end(taken().later(LEASE_MS / 2).cut(0, 1)).breaks(rule));
    assert!(!end(taken().add(What::Partitioned { process: 0, cut: true })).breaks(rule));
}

#[test]
fn an_operation_that_does_not_end_is_found() {
    let rule = ends::an_operation_ends_soon;
    let busy = Answer::Busy { fence: Fence::new(1), running: true };
    let waits = |millis| {
        story(OnLapsed::Rerun)
            .add(What::AllAnswered)
            .asked(1001)
            .answered(1001, busy.clone())
            .later(millis)
            .executed(1002, 2)
    };
    assert!(!waits(LEASE_MS / 2).breaks(rule));
    assert!(waits(LEASE_MS).breaks(rule));
    let broken = story(OnLapsed::Hold).add(What::Broken { why: String::new() });
    assert!(ends::nothing_is_broken(&broken.events).is_some());
}

#[test]
fn what_is_unknown_and_not_listed_is_found() {
    let rule = ends::what_is_unknown_is_listed;
    let listed = |unknown_ones: Vec<usize>| {
        story(OnLapsed::Hold)
            .asked(1001)
            .answered(1001, unknown(1))
            .add(What::Listed { unknown: unknown_ones })
    };
    assert!(!listed(vec![0]).breaks(rule));
    assert!(listed(vec![1]).breaks(rule));
}
