//! Duplicates of a running operation: rejected, waiting, cooperating; bounded, and never polling.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::engine::{Begun, HeldClaim, Limits};
use justonce_core::{
    BusyWhy, HandlerError, OnConcurrent, OnLapsed, Operation, Outcome, Ran, UnknownReason,
};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::common::handlers::{Count, done};
use crate::common::world::{LEASE, SECOND, START, World, breathe, operation, pass, policy};

/// Takes the claim by hand, so that the test decides when it ends.
async fn claim(world: &World, operation: &Operation) -> HeldClaim {
    match world.engine.begin(operation).await {
        Ok(Begun::Claimed(claim)) => claim,
        other => panic!("it must be claimed, not {other:?}"),
    }
}

/// A duplicate in a task of its own; it says when it ended, and `count` whether it executed.
fn duplicate(world: &World, operation: &Operation, count: &Count) -> JoinHandle<(Ran, Duration)> {
    let (engine, operation, count) = (world.engine.clone(), operation.clone(), count.clone());
    let start = Instant::now();
    tokio::spawn(async move {
        let ran = engine.run(&operation, async move |_| {
            count.add();
            Ok(Outcome::bytes("by the duplicate"))
        });
        (ran.await.unwrap(), start.elapsed())
    })
}

#[tokio::test(start_paused = true)]
async fn a_rejected_duplicate_hears_the_time_left() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun));
    let claim = claim(&world, &operation).await;
    pass(4 * SECOND).await;
    let (ran, took) = duplicate(&world, &operation, &Count::default()).await.unwrap();
    let Ran::Busy(busy) = ran else { panic!("it must be busy, not {ran:?}") };
    assert_eq!((busy.why, busy.fence), (BusyWhy::Running, claim.fence()));
    assert_eq!(busy.left, LEASE - 4 * SECOND);
    assert_eq!(took, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_duplicate_gets_the_outcome_the_moment_it_exists() {
    let world = World::new();
    let rule = OnConcurrent::Wait(100 * SECOND);
    let operation = operation(policy(OnLapsed::Rerun)).on_concurrent(rule);
    let mut claim = claim(&world, &operation).await;
    let count = Count::default();
    let waiting = duplicate(&world, &operation, &count);
    pass(17 * SECOND).await;
    assert_eq!(world.engine.load().waiting, 1);
    let stored = claim.complete(done()).await;
    assert!(stored.is_ok());
    assert_eq!(waiting.await.unwrap(), (Ran::Replayed(done()), 17 * SECOND));
    assert_eq!((count.get(), world.engine.load().waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_duplicate_hears_of_a_failure_too() {
    let world = World::new();
    let rule = OnConcurrent::Wait(100 * SECOND);
    let operation = operation(policy(OnLapsed::Rerun)).on_concurrent(rule);
    let mut claim = claim(&world, &operation).await;
    let waiting = duplicate(&world, &operation, &Count::default());
    pass(3 * SECOND).await;
    let failure = Outcome::bytes("never");
    assert!(claim.fail_for_good(failure.clone()).await.is_ok());
    assert_eq!(waiting.await.unwrap(), (Ran::FailedBefore(failure), 3 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_duplicate_never_executes_even_if_the_owner_releases() {
    let world = World::new();
    let rule = OnConcurrent::Wait(100 * SECOND);
    let operation = operation(policy(OnLapsed::Rerun)).on_concurrent(rule);
    let mut claim = claim(&world, &operation).await;
    let count = Count::default();
    let waiting = duplicate(&world, &operation, &count);
    pass(5 * SECOND).await;
    assert!(claim.release().await.is_ok());
    let (ran, took) = waiting.await.unwrap();
    let Ran::Busy(busy) = ran else { panic!("it must be busy, not {ran:?}") };
    assert_eq!((busy.left, took), (Duration::ZERO, 5 * SECOND));
    assert_eq!(count.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cooperating_duplicate_takes_over_when_the_owner_releases() {
    let world = World::new();
    let rule = OnConcurrent::Cooperate(100 * SECOND);
    let operation = operation(policy(OnLapsed::Hold)).on_concurrent(rule);
    let mut claim = claim(&world, &operation).await;
    let count = Count::default();
    let waiting = duplicate(&world, &operation, &count);
    pass(5 * SECOND).await;
    assert!(claim.release().await.is_ok());
    let ran = Ran::Executed(Outcome::bytes("by the duplicate"));
    assert_eq!(waiting.await.unwrap(), (ran, 5 * SECOND));
    assert_eq!(count.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cooperating_duplicate_takes_over_when_the_owner_abandons() {
    let world = World::new();
    let rule = OnConcurrent::Cooperate(100 * SECOND);
    let operation = operation(policy(OnLapsed::Rerun)).on_concurrent(rule);
    let mut claim = claim(&world, &operation).await;
    let waiting = duplicate(&world, &operation, &Count::default());
    pass(5 * SECOND).await;
    assert!(claim.abandon(UnknownReason::Reported).await.is_ok());
    let ran = Ran::Executed(Outcome::bytes("by the duplicate"));
    assert_eq!(waiting.await.unwrap(), (ran, 5 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_cooperating_duplicate_takes_over_when_the_owner_dies() {
    let world = World::new();
    let rule = OnConcurrent::Cooperate(100 * SECOND);
    let operation = operation(policy(OnLapsed::Rerun)).on_concurrent(rule);
    let claim = claim(&world, &operation).await;
    // A dead process renews nothing and gives nothing back.
    world.faults.always("renew", justonce_core::store::Fault::LostRequest);
    let survivor = world.second();
    let waiting = duplicate(&survivor, &operation, &Count::default());
    let (ran, took) = waiting.await.unwrap();
    assert_eq!(ran, Ran::Executed(Outcome::bytes("by the duplicate")));
    assert!(took >= LEASE && took <= LEASE + SECOND, "{took:?}");
    drop(claim);
}

#[tokio::test(start_paused = true)]
async fn a_cooperating_duplicate_waits_for_the_back_off_if_it_has_the_time() {
    let world = World::new();
    let first = operation(policy(OnLapsed::Rerun));
    let ran = world.engine.run(&first, async |_| Err(HandlerError::retryable("no luck"))).await;
    assert!(matches!(ran, Ok(Ran::Failed(_))));
    let patient = first.clone().on_concurrent(OnConcurrent::Cooperate(SECOND));
    let (ran, took) = duplicate(&world, &patient, &Count::default()).await.unwrap();
    assert_eq!(ran, Ran::Executed(Outcome::bytes("by the duplicate")));
    assert!(took >= Duration::from_millis(100) && took <= Duration::from_millis(202), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_back_off_that_outlasts_its_patience() {
    let world = World::new();
    let first = operation(policy(OnLapsed::Rerun));
    let ran = world.engine.run(&first, async |_| Err(HandlerError::retryable("no luck"))).await;
    assert!(matches!(ran, Ok(Ran::Failed(_))));
    let hasty = first.on_concurrent(OnConcurrent::Cooperate(Duration::from_millis(50)));
    let (ran, took) = duplicate(&world, &hasty, &Count::default()).await.unwrap();
    assert!(matches!(ran, Ran::Busy(busy) if busy.why == BusyWhy::BackOff), "{ran:?}");
    assert_eq!(took, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn waiting_is_bounded_in_time() {
    for rule in [OnConcurrent::Wait(45 * SECOND), OnConcurrent::Cooperate(45 * SECOND)] {
        let world = World::new();
        let operation = operation(policy(OnLapsed::Rerun)).on_concurrent(rule);
        let claim = claim(&world, &operation).await;
        let (ran, took) = duplicate(&world, &operation, &Count::default()).await.unwrap();
        assert!(matches!(ran, Ran::Busy(busy) if busy.fence == claim.fence()), "{ran:?}");
        assert_eq!(took, 45 * SECOND, "{rule:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_is_bounded_in_number() {
    let limits = Limits { max_waiters: 2, ..Limits::default() };
    let world = World::with(limits);
    let rule = OnConcurrent::Wait(100 * SECOND);
    let operation = operation(policy(OnLapsed::Rerun)).on_concurrent(rule);
    let mut claim = claim(&world, &operation).await;
    let count = Count::default();
    let waiting = [(); 2].map(|()| duplicate(&world, &operation, &count));
    breathe().await;
    let (third, took) = duplicate(&world, &operation, &count).await.unwrap();
    assert!(matches!(third, Ran::Busy(_)), "{third:?}");
    assert_eq!(took, Duration::ZERO);
    assert!(claim.complete(done()).await.is_ok());
    for one in waiting {
        assert_eq!(one.await.unwrap().0, Ran::Replayed(done()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_duplicates_share_one_execution() {
    let world = World::new();
    let operation =
        Arc::new(operation(policy(OnLapsed::Rerun)).on_concurrent(OnConcurrent::default()));
    let count = Count::default();
    let mut all = JoinSet::new();
    for _ in 0..1000 {
        let (engine, operation) = (world.engine.clone(), Arc::clone(&operation));
        let count = count.clone();
        all.spawn(async move {
            let ran = engine.run(&operation, async move |_| {
                count.add();
                pass(SECOND).await;
                Ok(done())
            });
            ran.await.unwrap()
        });
    }
    let ended = all.join_all().await;
    assert_eq!(count.get(), 1);
    assert_eq!(ended.iter().filter(|ran| **ran == Ran::Executed(done())).count(), 1);
    assert_eq!(ended.iter().filter(|ran| **ran == Ran::Replayed(done())).count(), 999);
    assert_eq!(world.engine.load().executing, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_duplicates_on_several_threads_share_one_execution() {
    let world = World::new();
    let operation =
        Arc::new(operation(policy(OnLapsed::Hold)).on_concurrent(OnConcurrent::default()));
    let count = Count::default();
    let mut all = JoinSet::new();
    for _ in 0..1000 {
        let (engine, operation) = (world.engine.clone(), Arc::clone(&operation));
        let count = count.clone();
        all.spawn(async move {
            let ran = engine.run(&operation, async move |_| {
                count.add();
                tokio::task::yield_now().await;
                Ok(done())
            });
            ran.await.unwrap()
        });
    }
    let ended = all.join_all().await;
    assert_eq!(count.get(), 1);
    assert!(ended.iter().all(|ran| ran.outcome() == Some(&done())));
}

#[tokio::test(start_paused = true)]
async fn waiting_duplicates_are_woken_and_do_not_poll() {
    let world = World::new();
    let rule = OnConcurrent::Wait(10 * LEASE);
    let operation = operation(policy(OnLapsed::Rerun)).on_concurrent(rule);
    let mut claim = claim(&world, &operation).await;
    let other = world.second();
    let waiting = [(); 10].map(|()| duplicate(&other, &operation, &Count::default()));
    // Less than a lease: not one of them has a reason to look again.
    pass(LEASE - SECOND).await;
    assert_eq!((other.calls.of("begin"), other.calls.of("peek")), (10, 0));
    assert!(claim.complete(done()).await.is_ok());
    for one in waiting {
        assert_eq!(one.await.unwrap().0, Ran::Replayed(done()));
    }
    assert_eq!(other.calls.of("settled"), 10, "all were woken");
    assert_eq!(other.calls.count(), 20, "begin and settled, once each: waking brings the outcome");
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_looks_again_once_a_lease() {
    let world = World::new();
    let rule = OnConcurrent::Cooperate(11 * LEASE);
    let operation = operation(policy(OnLapsed::Rerun)).on_concurrent(rule);
    let mut claim = claim(&world, &operation).await;
    let other = world.second();
    let count = Count::default();
    let waiting = duplicate(&other, &operation, &count);
    pass(10 * LEASE).await;
    assert!(claim.complete(done()).await.is_ok());
    assert_eq!(waiting.await.unwrap().0, Ran::Replayed(done()));
    assert_eq!(count.get(), 0, "a renewed lease is not taken over");
    // The time left that a look learns is between two thirds of a lease and a whole one.
    let looks = other.calls.of("begin");
    assert!((10..=17).contains(&looks), "{looks} looks in 10 leases");
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_the_operation_is_held() {
    let world = World::new();
    let rule = OnConcurrent::Cooperate(100 * SECOND);
    let operation = operation(policy(OnLapsed::Hold)).on_concurrent(rule);
    let mut claim = claim(&world, &operation).await;
    let waiting = duplicate(&world, &operation, &Count::default());
    pass(5 * SECOND).await;
    assert!(claim.abandon(UnknownReason::Reported).await.is_ok());
    let (ran, took) = waiting.await.unwrap();
    let Ran::Unknown(unknown) = ran else { panic!("it must be unknown, not {ran:?}") };
    assert_eq!(unknown.since, START.after(5 * SECOND));
    assert_eq!(took, 5 * SECOND);
}
