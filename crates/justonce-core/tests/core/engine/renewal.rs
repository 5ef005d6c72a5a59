//! Leases are renewed for as long as the handler runs, and no longer.

use std::sync::mpsc;
use std::time::Duration;

use justonce_core::engine::Begun;
use justonce_core::memory::MemoryStore;
use justonce_core::store::{Fault, Observed, Seen};
use justonce_core::{
    Action, Engine, Existing, OnLapsed, Ran, State, StateName, TimerClock, UnknownReason,
};
use tokio::time::Instant;

use crate::common::handlers::{Count, Dropped, done};
use crate::common::hooked::{Before, Hooked};
use crate::common::slow::{Lag, Slow};
use crate::common::world::{
    LEASE, LEASE_CAP, SECOND, START, World, named, operation, pass, policy, seeded,
};

#[tokio::test(start_paused = true)]
async fn a_handler_of_ten_leases_keeps_its_claim() {
    for on_lapsed in [OnLapsed::Rerun, OnLapsed::Resume, OnLapsed::Hold] {
        let world = World::new();
        let operation = operation(policy(on_lapsed));
        let other = world.second();
        let ran = world.engine.run(&operation, async |_| {
            for _ in 0..100 {
                pass(LEASE / 10).await;
                let duplicate = other.engine.run(&operation, async |_| panic!("it is running"));
                assert!(matches!(duplicate.await?, Ran::Busy(_)));
            }
            Ok(done())
        });
        assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
        let fence = world.stored(&operation).await.unwrap().entry.fence();
        assert_eq!(fence.get(), 1, "nobody else ever had it");
        let renewals = world.calls.of("renew");
        assert!((29..=30).contains(&renewals), "{renewals} renewals, one every third of a lease");
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_stop_after_completion() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun));
    let ran = world.engine.run(&operation, async |_| {
        pass(LEASE).await;
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
    let so_far = world.calls.count();
    pass(10 * LEASE).await;
    assert_eq!(world.calls.count(), so_far);
}

#[tokio::test(start_paused = true)]
async fn renewals_stop_when_a_claim_is_dropped() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun));
    let Begun::Claimed(claim) = world.engine.begin(&operation).await.unwrap() else {
        panic!("it must be claimed")
    };
    pass(2 * LEASE).await;
    drop(claim);
    let renewals = world.calls.of("renew");
    assert!(renewals >= 5, "{renewals}");
    pass(10 * LEASE).await;
    assert_eq!(world.calls.of("renew"), renewals);
}

#[tokio::test(start_paused = true)]
async fn a_short_handler_costs_no_renewal() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let ran = world.engine.run(&operation, async |_| Ok(done())).await;
    assert_eq!(ran.unwrap(), Ran::Executed(done()));
    pass(LEASE).await;
    let calls: Vec<_> = world.calls.all().into_iter().map(|(call, _)| call).collect();
    assert_eq!(calls, ["begin", "complete"]);
}

#[tokio::test(start_paused = true)]
async fn renewals_end_at_the_cap_and_so_does_the_handler() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let (dropped, start) = (Dropped::default(), Instant::now());
    let guard = dropped.guard();
    let ran = world.engine.run(&operation, async move |_| {
        let _guard = guard;
        std::future::pending().await
    });
    assert_eq!(ran.await.unwrap(), Ran::Abandoned(UnknownReason::TimedOut));
    assert_eq!(start.elapsed(), LEASE_CAP);
    assert!(dropped.get());
    assert_eq!(world.unknown_reason(&operation).await, Some(UnknownReason::TimedOut));
    let renewals = world.calls.of("renew");
    assert!(renewals <= 92, "{renewals} renewals; one every third of a lease are 90");
}

#[tokio::test(start_paused = true)]
async fn a_lease_never_outlasts_its_cap() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun).lease_cap(LEASE * 2));
    let Begun::Claimed(claim) = world.engine.begin(&operation).await.unwrap() else {
        panic!("it must be claimed")
    };
    pass(LEASE * 2 - SECOND).await;
    let peeked = world.engine.peek(&operation).await.unwrap();
    assert!(matches!(peeked, Some(Existing::Busy(busy)) if busy.left == SECOND), "{peeked:?}");
    pass(SECOND).await;
    assert_eq!(world.engine.peek(&operation).await.unwrap(), None, "it can be claimed");
    drop(claim);
}

#[tokio::test(start_paused = true)]
async fn renewals_that_fail_for_a_while_are_tried_again_in_time() {
    for fault in [Fault::NotApplied, Fault::LostRequest, Fault::LostReply] {
        let world = World::new();
        let operation = operation(policy(OnLapsed::Hold));
        let other = world.second();
        world.faults.next("renew", [fault; 8]);
        let ran = world.engine.run(&operation, async |_| {
            for _ in 0..50 {
                pass(LEASE / 10).await;
                let peeked = other.engine.peek(&operation).await?;
                assert!(matches!(peeked, Some(Existing::Busy(_))), "{fault:?} {peeked:?}");
            }
            Ok(done())
        });
        assert_eq!(ran.await.unwrap(), Ran::Executed(done()), "{fault:?}");
        assert!(world.calls.of("renew") > 8);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_is_tried_again_while_the_lease_lasts() {
    for hanging in [1, 2] {
        let world = World::new();
        let operation = operation(policy(OnLapsed::Hold));
        let (renewals, hangs) = (Count::default(), Count::default());
        let (seen, hung) = (renewals.clone(), hangs.clone());
        let store = Hooked::new(world.store.clone(), move |step| -> Before {
            if !matches!(step.action, Action::Renew(_)) || seen.add() > hanging {
                return Box::pin(async {});
            }
            let hung = hung.clone();
            hung.add();
            Box::pin(async move {
                let _ended = Ended(hung);
                std::future::pending::<()>().await;
            })
        });
        let engine = seeded(Engine::builder(store), 2).build();
        let ran = engine.run(&operation, async |_| {
            for _ in 0..30 {
                pass(LEASE / 10).await;
                let peeked = world.engine.peek(&operation).await?;
                assert!(matches!(peeked, Some(Existing::Busy(_))), "{peeked:?}");
            }
            Ok(done())
        });
        assert_eq!(ran.await.unwrap(), Ran::Executed(done()), "{hanging} hang");
        assert!(renewals.get() > hanging);
        assert_eq!(hangs.get(), 0, "a call that is of no more use is given up");
    }
}

/// One less when it is dropped.
struct Ended(Count);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.sub();
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_slow_is_heard() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let store = Slow::new(world.store.clone(), |step| match step.action {
        Action::Renew(_) => Lag { there: LEASE / 5, back: LEASE / 5 },
        _ => Lag::default(),
    });
    let engine = seeded(Engine::builder(store), 2).build();
    let ran = engine.run(&operation, async |_| {
        for _ in 0..100 {
            pass(LEASE / 10).await;
            let peeked = world.engine.peek(&operation).await?;
            assert!(matches!(peeked, Some(Existing::Busy(_))), "{peeked:?}");
        }
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_lapsed_unnoticed_is_renewed_again() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun));
    world.faults.always("renew", Fault::LostRequest);
    let ran = world.engine.run(&operation, async |_| {
        pass(2 * LEASE).await;
        world.faults.heal();
        pass(LEASE / 10).await;
        let duplicate = world.engine.run(&operation, async |_| panic!("it is running again"));
        assert!(matches!(duplicate.await?, Ran::Busy(_)));
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn an_owner_whose_operation_is_held_may_still_finish_it() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let other = world.second();
    world.faults.always("renew", Fault::LostRequest);
    let ran = world.engine.run(&operation, async |_| {
        pass(LEASE).await;
        let duplicate = other.engine.run(&operation, async |_| panic!("nobody may run it"));
        assert!(matches!(duplicate.await?, Ran::Unknown(_)));
        world.faults.heal();
        pass(LEASE).await;
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
    assert_eq!(world.state(&operation).await, StateName::Completed);
}

#[tokio::test(start_paused = true)]
async fn many_claims_are_renewed_each_in_its_own_time() {
    let world = World::new();
    let mut claims = Vec::new();
    for number in 0_u32..20 {
        let lease = SECOND * (20 - number);
        let rules = policy(OnLapsed::Hold).lease(lease);
        let operation = named(&format!("order-{number}"), rules);
        match world.engine.begin(&operation).await.unwrap() {
            Begun::Claimed(claim) => claims.push((operation, claim)),
            Begun::Existing(existing) => panic!("it must be claimed, not {existing:?}"),
        }
    }
    pass(100 * SECOND).await;
    for (operation, claim) in &claims {
        let stored = world.stored(operation).await.unwrap();
        let State::InProgress(held) = &stored.entry.record().unwrap().state else {
            panic!("it must be in progress")
        };
        assert!(held.is_alive(START.after(100 * SECOND)));
        assert!(!claim.is_lost());
    }
}

/// An engine on the machine's own time that signals each renewal.
fn signalling() -> (Engine, mpsc::Receiver<bool>) {
    let (renewed, signal) = mpsc::channel();
    let store = MemoryStore::new(TimerClock::starting_at(START));
    let observer = move |seen: Seen<'_>| {
        if seen.call == "renew" {
            // The test may have ended already; then nobody listens.
            let _ = renewed.send(seen.result.is_ok());
        }
    };
    (Engine::new(Observed::new(store, observer)), signal)
}

/// Blocks its thread until five renewals were seen.
async fn block_until_renewed(engine: &Engine, signal: mpsc::Receiver<bool>) -> Ran {
    let rules = policy(OnLapsed::Hold).lease(Duration::from_millis(60));
    let ran = engine.run_detached(named("blocking", rules), async move |_| {
        for _ in 0..5 {
            let arrived = signal.recv_timeout(10 * SECOND);
            assert_eq!(arrived, Ok(true), "no renewal while the handler blocks its thread");
        }
        Ok(done())
    });
    ran.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_is_still_renewed() {
    let (engine, signal) = signalling();
    let ran = block_until_renewed(&engine, signal).await;
    assert_eq!(ran, Ran::Executed(done()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_does_not_hold_up_the_renewals_of_others() {
    let (engine, signal) = signalling();
    let long = named("long", policy(OnLapsed::Hold));
    let Begun::Claimed(mut other) = engine.begin(&long).await.unwrap() else {
        panic!("it must be claimed")
    };
    let ran = block_until_renewed(&engine, signal).await;
    assert_eq!(ran, Ran::Executed(done()));
    assert!(other.complete(done()).await.is_ok());
}
