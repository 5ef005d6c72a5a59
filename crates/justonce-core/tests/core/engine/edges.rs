//! What remains of a claim's life at its edges: its first lease, and its last work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use justonce_core::engine::Begun;
use justonce_core::store::{Retry, RetryPolicy, Timeout};
use justonce_core::{Action, Engine, Entropy, OnLapsed, StateName};

use crate::common::handlers::Count;
use crate::common::hooked::{Before, Hooked};
use crate::common::slow::{Lag, Slow};
use crate::common::world::{LEASE, SECOND, World, named, operation, pass, policy, seeded};

/// A store whose steps of one kind are slow on their way.
fn slow(
    world: &World,
    is_slow: impl Fn(&Action) -> bool + Send + Sync + 'static,
    lag: Lag,
) -> Slow {
    Slow::new(
        world.store.clone(),
        move |step| {
            if is_slow(&step.action) { lag } else { Lag::default() }
        },
    )
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_begin_was_answered_late_does_not_lapse_under_its_owner() {
    for late in [15, 25, 29] {
        let world = World::new();
        let order = operation(policy(OnLapsed::Rerun));
        let lag = Lag { there: Duration::ZERO, back: late * SECOND };
        let store = slow(&world, |action| matches!(action, Action::Begin(_)), lag);
        let engine = seeded(Engine::builder(store), 2).build();
        let Begun::Claimed(claim) = engine.begin(&order).await.unwrap() else {
            panic!("it is new")
        };
        for _ in 0..60 {
            pass(SECOND).await;
            let second = world.engine.begin(&order).await.unwrap();
            assert!(
                matches!(second, Begun::Existing(_)),
                "answered after {late} s of a lease of {LEASE:?}, and taken over under its owner"
            );
        }
        drop(claim);
    }
}

#[tokio::test(start_paused = true)]
async fn a_begin_that_was_repeated_late_is_not_renewed_all_the_time() {
    let world = World::new();
    let order = operation(policy(OnLapsed::Rerun));
    let renewals = Count::default();
    let (counted, begins) = (renewals.clone(), Arc::new(AtomicU32::new(0)));
    // The first begin is taken and its reply lost: the second comes when the lease is nearly over.
    let store = Slow::new(world.store.clone(), move |step| match step.action {
        Action::Begin(_) if begins.fetch_add(1, Ordering::SeqCst) == 0 => {
            Lag { there: Duration::ZERO, back: LEASE }
        }
        Action::Renew(_) => {
            counted.add();
            Lag { there: Duration::from_millis(2), back: Duration::from_millis(2) }
        }
        _ => Lag::default(),
    });
    let limited = Timeout::new(store, LEASE - Duration::from_millis(10));
    let pause = Duration::from_millis(1);
    let retry = RetryPolicy { first_pause: pause, max_pause: pause, ..RetryPolicy::default() };
    let store = Retry::new(limited, retry, Arc::new(Entropy::seeded(3)));
    let engine = seeded(Engine::builder(store), 2).build();
    let Begun::Claimed(claim) = engine.begin(&order).await.unwrap() else { panic!("it is new") };
    pass(2 * LEASE).await;
    assert!(renewals.get() <= 20, "{} renewals in two leases", renewals.get());
    let second = world.engine.begin(&order).await.unwrap();
    assert!(matches!(second, Begun::Existing(_)), "taken over under its owner");
    drop(claim);
}

#[tokio::test(start_paused = true)]
async fn drained_waits_for_what_callers_left() {
    for (on_lapsed, left) in
        [(OnLapsed::Hold, StateName::Unknown), (OnLapsed::Resume, StateName::InProgress)]
    {
        let world = World::new();
        let order = operation(policy(on_lapsed));
        let lag = Lag { there: 5 * SECOND, back: Duration::ZERO };
        let store = slow(&world, |action| matches!(action, Action::Abandon(..)), lag);
        let engine = seeded(Engine::builder(store), 2).build();
        let run = engine.run(&order, async |_| std::future::pending().await);
        assert!(tokio::time::timeout(SECOND, run).await.is_err());
        engine.drained().await;
        // From here on the process may end.
        assert_eq!(world.state(&order).await, left);
        let again = world.engine.begin(&order).await.unwrap();
        let taken = matches!(again, Begun::Claimed(_));
        assert_eq!(taken, on_lapsed == OnLapsed::Resume, "{again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn drained_waits_for_begins_that_callers_left() {
    let world = World::new();
    let order = operation(policy(OnLapsed::Hold));
    let lag = Lag { there: 2 * SECOND, back: 2 * SECOND };
    let store = slow(&world, |action| matches!(action, Action::Begin(_)), lag);
    let engine = seeded(Engine::builder(store), 2).build();
    assert!(tokio::time::timeout(3 * SECOND, engine.begin(&order)).await.is_err());
    assert_eq!(world.state(&order).await, StateName::InProgress, "the store has taken it");
    engine.drained().await;
    assert_eq!(world.state(&order).await, StateName::Absent, "nothing was executed");
}

#[tokio::test(start_paused = true)]
async fn drained_does_not_wait_longer_than_a_lease_for_a_store_that_is_away() {
    let world = World::new();
    let order = operation(policy(OnLapsed::Hold));
    let store =
        Hooked::new(world.store.clone(), |_| -> Before { Box::pin(std::future::pending()) });
    let engine = seeded(Engine::builder(store), 2).build();
    assert!(tokio::time::timeout(SECOND, engine.begin(&order)).await.is_err());
    tokio::time::timeout(LEASE + SECOND, engine.drained()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_given_up_is_not_renewed_by_a_renewal_that_was_under_way() {
    let world = World::new();
    let order = operation(policy(OnLapsed::Resume));
    let lag = Lag { there: 4 * SECOND, back: Duration::ZERO };
    let store = slow(&world, |action| matches!(action, Action::Renew(_)), lag);
    let engine = seeded(Engine::builder(store), 2).build();
    let run = engine.run(&order, async |_| std::future::pending().await);
    // The first renewal is sent after ten seconds.
    assert!(tokio::time::timeout(11 * SECOND, run).await.is_err());
    pass(5 * SECOND).await;
    let second = world.engine.begin(&order).await.unwrap();
    assert!(matches!(second, Begun::Claimed(_)), "taken over at once, not {second:?}");
}

#[tokio::test(start_paused = true)]
async fn begins_that_are_looked_for_are_bounded() {
    const BEGINS: usize = 30_000;
    let world = World::new();
    let engine = {
        let lag = Lag { there: Duration::from_millis(1), back: Duration::from_millis(1) };
        let store = slow(&world, |action| matches!(action, Action::Begin(_)), lag);
        seeded(Engine::builder(store), 2).build()
    };
    let day = Duration::from_secs(86_400);
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for number in 0..BEGINS {
        let hour = policy(OnLapsed::Hold).lease_cap(day).lease(day);
        let order = named(&format!("order-{number}"), hour);
        assert!(tokio::time::timeout(Duration::ZERO, engine.begin(&order)).await.is_err());
        if number % 1000 == 0 {
            pass(SECOND).await;
        }
    }
    pass(60 * SECOND).await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks() - before;
    assert!(tasks <= 10_100, "{tasks} tasks wait for half a day");
}
