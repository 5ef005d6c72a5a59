//! The step-by-step API, and the reaper.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use justonce_core::engine::{Begun, HeldClaim, ReaperSettings, Settlement};
use justonce_core::store::{Fault, ListQuery, Maintenance};
use justonce_core::{
    Action, AfterRetention, BusyWhy, Checkpoint, Engine, Existing, Lost, OnLapsed, Operation,
    Outcome, Ran, StateName, StoreError, StoreErrorKind, UnknownReason,
};

use crate::common::erring::Erring;
use crate::common::handlers::done;
use crate::common::world::{LEASE, SECOND, World, breathe, named, operation, pass, policy};

async fn claim(world: &World, operation: &Operation) -> HeldClaim {
    match world.engine.begin(operation).await {
        Ok(Begun::Claimed(claim)) => claim,
        other => panic!("it must be claimed, not {other:?}"),
    }
}

async fn existing(world: &World, operation: &Operation) -> Existing {
    match world.engine.begin(operation).await {
        Ok(Begun::Existing(existing)) => existing,
        other => panic!("it must exist, not {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn complete_is_replayed_to_the_next_begin() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let mut held = claim(&world, &operation).await;
    assert_eq!((held.id(), held.attempt(), held.checkpoint()), (operation.id(), 1, None));
    assert!(matches!(existing(&world, &operation).await, Existing::Busy(_)));
    assert_eq!(held.complete(done()).await.unwrap(), Settlement::Stored);
    assert_eq!(existing(&world, &operation).await.completed(), Some(&done()));
    // A settled claim is not abandoned when it is dropped.
    drop(held);
    breathe().await;
    assert_eq!(world.calls.of("abandon"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_settlement_says_the_same_and_another_one_is_lost() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let mut held = claim(&world, &operation).await;
    for _ in 0..3 {
        assert_eq!(held.complete(done()).await.unwrap(), Settlement::Stored);
    }
    let other = held.complete(Outcome::bytes("other")).await.unwrap();
    assert_eq!(other, Settlement::Lost(Lost::Settled));
    assert_eq!(held.release().await.unwrap(), Settlement::Lost(Lost::Settled));
    assert_eq!(existing(&world, &operation).await.completed(), Some(&done()));
}

#[tokio::test(start_paused = true)]
async fn fail_backs_off_and_fail_for_good_is_replayed() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let mut held = claim(&world, &operation).await;
    assert_eq!(held.fail(done()).await.unwrap(), Settlement::Stored);
    let busy = existing(&world, &operation).await;
    assert!(matches!(busy, Existing::Busy(busy) if busy.why == BusyWhy::BackOff), "{busy:?}");
    pass(SECOND).await;
    let mut held = claim(&world, &operation).await;
    assert_eq!(held.attempt(), 2);
    assert_eq!(held.fail_for_good(done()).await.unwrap(), Settlement::Stored);
    assert_eq!(existing(&world, &operation).await.failed(), Some(&done()));
}

#[tokio::test(start_paused = true)]
async fn release_frees_the_key_and_its_fence_is_never_given_again() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let mut first = claim(&world, &operation).await;
    assert_eq!(first.release().await.unwrap(), Settlement::Stored);
    assert_eq!(world.engine.peek(&operation).await.unwrap(), None);
    let second = claim(&world, &operation).await;
    assert!(second.fence() > first.fence());
    assert_eq!(second.attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn abandon_follows_the_policy() {
    for on_lapsed in [OnLapsed::Hold, OnLapsed::Rerun, OnLapsed::Resume] {
        let world = World::new();
        let operation = operation(policy(on_lapsed));
        let mut held = claim(&world, &operation).await;
        let abandoned = held.abandon(UnknownReason::Reported).await.unwrap();
        assert_eq!(abandoned, Settlement::Stored);
        match on_lapsed {
            OnLapsed::Hold => {
                let existing = existing(&world, &operation).await;
                assert!(matches!(existing, Existing::Unknown(_)), "{existing:?}");
            }
            OnLapsed::Rerun | OnLapsed::Resume => {
                assert_eq!(claim(&world, &operation).await.attempt(), 2);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn save_keeps_a_point_and_a_held_operation_takes_none() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let mut held = claim(&world, &operation).await;
    let point = |name| Checkpoint::new(name, "").unwrap();
    assert_eq!(held.save(point("half")).await.unwrap(), Settlement::Stored);
    assert!(held.abandon(UnknownReason::Reported).await.is_ok());
    let refused = held.save(point("later")).await.unwrap();
    assert_eq!(refused, Settlement::Lost(Lost::Held));
}

#[tokio::test(start_paused = true)]
async fn a_claim_dropped_unsettled_may_have_taken_effect() {
    for on_lapsed in [OnLapsed::Hold, OnLapsed::Rerun, OnLapsed::Resume] {
        let world = World::new();
        let operation = operation(policy(on_lapsed));
        drop(claim(&world, &operation).await);
        breathe().await;
        assert_eq!(world.engine.load().executing, 0);
        let reason = world.unknown_reason(&operation).await;
        match on_lapsed {
            OnLapsed::Hold => assert_eq!(reason, Some(UnknownReason::Dropped)),
            OnLapsed::Rerun | OnLapsed::Resume => {
                assert_eq!(reason, None);
                assert_eq!(claim(&world, &operation).await.attempt(), 2);
            }
        }
    }
}

#[test]
fn a_claim_dropped_outside_a_runtime_lapses_by_itself() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let operation = operation(policy(OnLapsed::Hold));
    let (world, held) = runtime.block_on(async {
        let world = World::new();
        let held = claim(&world, &operation).await;
        (world, held)
    });
    drop(held);
    runtime.block_on(async {
        assert!(matches!(existing(&world, &operation).await, Existing::Busy(_)));
        pass(LEASE).await;
        assert!(matches!(existing(&world, &operation).await, Existing::Unknown(_)));
    });
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_the_store_does_not_take_may_be_repeated() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let mut held = claim(&world, &operation).await;
    world.faults.next("complete", [Fault::NotApplied, Fault::LostReply]);
    assert!(held.complete(done()).await.is_err());
    pass(2 * LEASE).await;
    assert!(!held.is_lost(), "it is still held and renewed");
    assert!(held.complete(done()).await.is_err());
    assert_eq!(held.complete(done()).await.unwrap(), Settlement::Stored);
}

#[tokio::test(start_paused = true)]
async fn a_held_claim_knows_when_it_is_lost() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun));
    world.faults.always("renew", Fault::LostRequest);
    let held = claim(&world, &operation).await;
    pass(LEASE).await;
    let other = world.second();
    let winner = claim(&other, &operation).await;
    assert!(!held.is_lost(), "it cannot know yet");
    world.faults.heal();
    pass(LEASE).await;
    assert!(held.is_lost());
    assert!(!winner.is_lost());
}

#[tokio::test(start_paused = true)]
async fn peek_never_claims() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    assert_eq!(world.engine.peek(&operation).await.unwrap(), None);
    assert_eq!(world.state(&operation).await, StateName::Absent);
    assert_eq!(claim(&world, &operation).await.attempt(), 1);
}

/// Five completed operations, of which the reaper has to remove or bury the record.
async fn completed(world: &World, after: AfterRetention) -> Vec<Operation> {
    let rules = policy(OnLapsed::Rerun).retention(60 * SECOND).after_retention(after);
    let all: Vec<_> = (0..5).map(|n| named(&format!("order-{n}"), rules)).collect();
    for operation in &all {
        let ran = world.engine.run(operation, async |_| Ok(done())).await;
        assert_eq!(ran.unwrap(), Ran::Executed(done()));
    }
    all
}

async fn count(world: &World, state: StateName) -> u64 {
    let stats = world.store.stats().await.unwrap();
    stats.of(state).map_or(0, |stats| stats.count)
}

#[tokio::test(start_paused = true)]
async fn the_reaper_removes_what_has_expired() {
    let world = World::new();
    completed(&world, AfterRetention::New).await;
    let reaper =
        world.engine.start_reaper(ReaperSettings { portion: 2, ..ReaperSettings::default() });
    pass(59 * SECOND).await;
    assert_eq!(count(&world, StateName::Completed).await, 5);
    pass(12 * SECOND).await;
    assert_eq!(count(&world, StateName::Completed).await, 0);
    let left = world.store.list(&ListQuery::default()).await.unwrap();
    assert!(left.records.is_empty());
    drop(reaper);
}

#[tokio::test(start_paused = true)]
async fn the_reaper_buries_and_later_removes_the_tombstones() {
    let world = World::new();
    let all = completed(&world, AfterRetention::Refuse(60 * SECOND)).await;
    let reaper = world.engine.start_reaper(ReaperSettings::default());
    pass(71 * SECOND).await;
    assert_eq!(count(&world, StateName::Tombstone).await, 5);
    for operation in &all {
        assert!(matches!(existing(&world, operation).await, Existing::Expired(_)));
    }
    pass(60 * SECOND).await;
    assert_eq!(count(&world, StateName::Tombstone).await, 0);
    drop(reaper);
}

#[tokio::test(start_paused = true)]
async fn the_reaper_holds_lapsed_claims_and_leaves_running_and_unknown_ones() {
    let world = World::new();
    let running = named("running", policy(OnLapsed::Hold));
    let held = claim(&world, &running).await;
    let dead = world.second();
    let lapsed = named("lapsed", policy(OnLapsed::Hold));
    let lost = claim(&dead, &lapsed).await;
    dead.faults.always("renew", Fault::LostRequest);
    let reaper = world.engine.start_reaper(ReaperSettings::default());
    pass(10 * LEASE).await;
    assert_eq!(world.unknown_reason(&lapsed).await, Some(UnknownReason::Lapsed));
    assert_eq!(world.state(&running).await, StateName::InProgress);
    drop((held, lost, reaper));
}

#[tokio::test(start_paused = true)]
async fn the_reaper_keeps_its_pause_while_the_store_fails() {
    let world = World::new();
    let store = Erring::new(world.store.clone(), |step| {
        let error = || StoreError::not_applied(StoreErrorKind::Unavailable, "it is down");
        matches!(step.action, Action::Sweep).then(error)
    });
    let engine = Engine::builder(store).build();
    let failures = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&failures);
    let reaper = engine.start_observed_reaper(ReaperSettings::default(), move |swept| {
        count.fetch_add(usize::from(swept.is_err()), Ordering::Relaxed);
    });
    pass(65 * SECOND).await;
    assert_eq!(failures.load(Ordering::Relaxed), 7, "one at once, and one every ten seconds");
    drop(reaper);
}

#[tokio::test(start_paused = true)]
async fn the_reaper_stops_when_it_is_dropped() {
    let world = World::new();
    completed(&world, AfterRetention::New).await;
    let reaper = world.engine.start_reaper(ReaperSettings::default());
    pass(35 * SECOND).await;
    assert_eq!(world.calls.of("sweep_all"), 4);
    drop(reaper);
    pass(600 * SECOND).await;
    assert_eq!(world.calls.of("sweep_all"), 4);
    assert_eq!(count(&world, StateName::Completed).await, 5);
    let report = world.engine.sweep(3).await.unwrap();
    assert_eq!((report.removed, report.more), (3, true));
}
