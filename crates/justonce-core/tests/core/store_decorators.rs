//! Retry, timeout and observation around a store.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::{
    Fault, Faulty, ListQuery, Maintenance, Observed, Records, Retry, RetryPolicy, Seen, Timeout,
};
use justonce_core::{
    Action, Answer, Checkpoint, Effect, Entropy, Failure, FailureKind, Fence, Fingerprint,
    OnLapsed, Owner, Resolution, Resolve, Resolver, Step, StoreError, StoreErrorKind, Token,
    UnknownReason, Why,
};
use tokio::time::Instant;

use crate::common::erring::Erring;
use crate::common::handlers::{Count, done};
use crate::common::script::Calls;
use crate::common::shared::Shared;
use crate::common::slow::{Lag, Slow};
use crate::common::world::{SECOND, World, operation, policy};

/// One step of each kind.
fn every_step() -> Vec<Step> {
    let operation = operation(policy(OnLapsed::Rerun));
    let fence = Fence::new(1);
    let failure = Failure { outcome: done(), kind: FailureKind::Passing, jitter: 0 };
    let resolve = Resolve {
        resolution: Resolution::Release,
        by: Resolver::operator("ada"),
        why: Why::new("asked the bank"),
    };
    let actions = vec![
        Action::Peek(Fingerprint::UNCHECKED),
        Action::Complete(fence, done()),
        Action::Fail(fence, failure),
        Action::Release(fence),
        Action::Renew(fence),
        Action::Checkpoint(fence, Checkpoint::new("half", "way").unwrap()),
        Action::Abandon(fence, UnknownReason::Reported.into()),
        Action::Resolve(fence, Box::new(resolve)),
        // Of another record, so that there is something left to look at.
        Action::Expire(fence.next()),
        Action::Erase(fence.next()),
        Action::Sweep,
    ];
    let begin = Step::begin(&operation, Owner::new("test"), Token(1));
    let others = actions.into_iter().map(|action| Step::new(operation.id(), action));
    std::iter::once(begin).chain(others).collect()
}

fn retrying<S>(inner: S, tries: u32) -> Retry<S> {
    let policy = RetryPolicy { tries, ..RetryPolicy::default() };
    Retry::new(inner, policy, Arc::new(Entropy::seeded(1)))
}

/// A store that always answers with an error, and counts.
fn always(error: &StoreError) -> (Erring, Count) {
    let (count, error) = (Count::default(), error.clone());
    let tries = count.clone();
    let store = Erring::new(World::new().store, move |_| {
        tries.add();
        Some(error.clone())
    });
    (store, count)
}

#[tokio::test(start_paused = true)]
async fn passing_errors_of_every_step_are_tried_again() {
    // Each step is safe to repeat: a begin by its token, a write by its fence.
    assert!(every_step().iter().all(|step| step.action.is_repeatable()));
    for kind in [StoreErrorKind::Unavailable, StoreErrorKind::TimedOut] {
        for error in
            [StoreError::not_applied(kind, "away"), StoreError::maybe_applied(kind, "away")]
        {
            for step in every_step() {
                let (store, count) = always(&error);
                let failed = retrying(store, 4).apply(&step).await.unwrap_err();
                assert_eq!((failed.kind(), failed.effect()), (kind, error.effect()));
                assert_eq!(count.get(), 4, "{} {error}", step.action.name());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn errors_that_do_not_pass_are_never_tried_again() {
    use StoreErrorKind::{Damaged, Full, Protocol, Stopped};
    for kind in [Damaged, Full, Protocol, Stopped] {
        for error in [StoreError::not_applied(kind, "no"), StoreError::maybe_applied(kind, "no")] {
            for step in every_step() {
                let (store, count) = always(&error);
                assert!(retrying(store, 4).apply(&step).await.is_err());
                assert_eq!(count.get(), 1, "{} {error}", step.action.name());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_begin_whose_reply_was_lost_gets_its_claim_by_trying_again() {
    for fault in [Fault::NotApplied, Fault::LostRequest, Fault::LostReply] {
        let world = World::new();
        world.faults.next("begin", [fault; 2]);
        let store = retrying(Faulty::new(world.store.clone(), world.faults.clone()), 3);
        let step = every_step().remove(0);
        let Answer::Claimed(claimed) = store.apply(&step).await.unwrap() else {
            panic!("it must be claimed")
        };
        assert_eq!(claimed.attempt, 1, "{fault:?}: it is one and the same claim");
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_try_may_have_done_is_not_forgotten() {
    for lost in [Fault::LostRequest, Fault::LostReply] {
        let world = World::new();
        // The reply is lost with the store, and then nobody listens any more.
        world.faults.next("begin", [lost, Fault::NotApplied, Fault::NotApplied]);
        let store = retrying(Faulty::new(world.store.clone(), world.faults.clone()), 3);
        let error = store.apply(&every_step().remove(0)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert_eq!(error.effect(), Effect::MayHaveBeenApplied, "{lost:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn tries_are_bounded_and_pause_longer_each_time() {
    for tries in [0, 1, 2, 5] {
        let (store, count) = always(&StoreError::not_applied(StoreErrorKind::Unavailable, "away"));
        let start = Instant::now();
        let store = retrying(store, tries);
        assert!(store.apply(&every_step().remove(0)).await.is_err());
        assert_eq!(count.get(), tries.max(1) as usize);
        // Pauses of 20, 40, 80, 160 ms, each between half of that and all of it.
        let whole = Duration::from_millis(20) * (2_u32.pow(tries.max(1) - 1) - 1);
        let slack = Duration::from_millis(u64::from(tries));
        assert!((whole / 2..=whole + slack).contains(&start.elapsed()), "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_not_tried_again() {
    let (calls, world) = (Calls::default(), World::new());
    let store = retrying(Observed::new(world.store.clone(), calls.clone()), 9);
    for step in every_step() {
        assert!(store.apply(&step).await.is_ok());
    }
    assert_eq!(calls.count(), every_step().len());
}

/// A store that needs ten seconds for everything.
fn slow(world: &World) -> Slow {
    Slow::new(world.store.clone(), |_| Lag { there: 5 * SECOND, back: 5 * SECOND })
}

#[tokio::test(start_paused = true)]
async fn a_step_that_was_cut_off_may_have_been_applied() {
    let world = World::new();
    let store = Timeout::new(slow(&world), 7 * SECOND);
    for step in every_step() {
        let start = Instant::now();
        let error = store.apply(&step).await.unwrap_err();
        assert_eq!(start.elapsed(), 7 * SECOND);
        assert_eq!(error.kind(), StoreErrorKind::TimedOut);
        assert_eq!(error.effect(), Effect::MayHaveBeenApplied, "{}", step.action.name());
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_was_cut_off_was_not_applied() {
    let world = World::new();
    let store = Timeout::new(slow(&world), SECOND);
    let error = store.get(&every_step().remove(0).id).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::TimedOut, Effect::NotApplied));
}

#[tokio::test(start_paused = true)]
async fn calls_within_the_limit_are_left_alone() {
    let world = World::new();
    let store = Timeout::new(slow(&world), 11 * SECOND);
    for step in every_step() {
        assert!(store.apply(&step).await.is_ok());
    }
    assert!(store.get(&every_step().remove(0).id).await.unwrap().is_some());
    assert!(store.stats().await.is_ok() && store.ready().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_names_results_and_times() {
    let world = World::new();
    let calls = Calls::default();
    let store = Observed::new(Faulty::new(slow(&world), world.faults.clone()), calls.clone());
    let steps = every_step();
    world.faults.next("renew", [Fault::NotApplied]);
    for step in &steps {
        // Every answer and every error is a result that the observer sees.
        let _ = store.apply(step).await;
    }
    let seen: Vec<_> = calls.all();
    let expected = [
        ("begin", "claimed"),
        ("peek", "busy"),
        ("complete", "applied"),
        ("fail", "lost"),
        ("release", "lost"),
        ("renew", "Unavailable NotApplied"),
        ("checkpoint", "lost"),
        ("abandon", "lost"),
        ("resolve", "lost"),
        ("expire", "lost"),
        ("erase", "lost"),
        ("sweep", "swept"),
    ];
    let expected: Vec<_> =
        expected.iter().map(|(call, result)| (*call, (*result).to_owned())).collect();
    assert_eq!(seen, expected);
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_reads_and_maintenance_too() {
    let world = World::new();
    let (sender, seen) = std::sync::mpsc::channel();
    let observer = move |seen: Seen<'_>| {
        sender.send((seen.call, seen.result.is_ok(), seen.elapsed)).unwrap();
    };
    let store = Observed::new(slow(&world), observer);
    let id = every_step().remove(0).id;
    assert_eq!(store.get(&id).await.unwrap(), None);
    assert!(store.settled(&id, Fence::new(1)).await.is_ok());
    assert!(store.list(&ListQuery::default()).await.unwrap().records.is_empty());
    assert!(store.stats().await.is_ok());
    assert!(store.sweep(10).await.is_ok());
    assert!(store.ready().await.is_ok());
    let calls: Vec<_> = seen.try_iter().collect();
    let names: Vec<_> = calls.iter().map(|(call, ..)| *call).collect();
    assert_eq!(names, ["get", "settled", "list", "stats", "sweep_all", "ready"]);
    assert!(calls.iter().all(|(_, ok, _)| *ok));
    assert_eq!(calls.first().map(|(.., elapsed)| *elapsed), Some(5 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn decorators_can_be_stacked_in_any_order() {
    let world = World::new();
    let lossy = |store: Shared| {
        let faults = world.faults.clone();
        faults.next("begin", [Fault::LostReply]);
        Faulty::new(store, faults)
    };
    let outside = Timeout::new(retrying(lossy(world.store.clone()), 3), SECOND);
    let step = every_step().remove(0);
    assert!(matches!(outside.apply(&step).await, Ok(Answer::Claimed(_))));
    let inside = retrying(Timeout::new(lossy(world.store.clone()), SECOND), 3);
    assert!(matches!(inside.apply(&step).await, Ok(Answer::Claimed(_))));
}
