//! A dropped future and a panic are documented ends, not accidents.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::engine::{Begun, Context, HandlerError};
use justonce_core::store::Fault;
use justonce_core::{Action, Engine, OnLapsed, Operation, Outcome, Ran, StateName, UnknownReason};
use tokio::sync::Notify;

use crate::common::handlers::{Count, Dropped, done};
use crate::common::hooked::{Before, Hooked};
use crate::common::slow::{Lag, Slow};
use crate::common::world::{LEASE, SECOND, World, breathe, operation, pass, policy, seeded};

/// Runs a handler that never ends, and drops the run in the middle of it.
async fn drop_mid_handler(world: &World, operation: &Operation) {
    let dropped = Dropped::default();
    let guard = dropped.guard();
    let started = Arc::new(Notify::new());
    let signal = Arc::clone(&started);
    let run = world.engine.run(operation, async move |_| {
        let _guard = guard;
        signal.notify_one();
        std::future::pending().await
    });
    tokio::select! {
        ran = run => panic!("the handler never ends, but {ran:?}"),
        () = started.notified() => {}
    }
    assert!(dropped.get());
    breathe().await;
}

/// Runs a handler in a task that panics, and gives back what the panic said.
async fn panicking<H, F>(world: &World, operation: &Operation, handler: H) -> String
where
    H: FnOnce(Context) -> F + Send + 'static,
    F: Future<Output = Result<Outcome, HandlerError>> + Send + 'static,
{
    let (engine, operation) = (world.engine.clone(), operation.clone());
    let task = tokio::spawn(async move { engine.run(&operation, handler).await });
    let panic = task.await.unwrap_err().into_panic();
    (*panic.downcast::<&'static str>().unwrap()).to_owned()
}

async fn runs_again_as_second_attempt(world: &World, operation: &Operation) {
    let ran = world.engine.run(operation, async |context| {
        assert_eq!((context.attempt(), context.fence().get()), (2, 2));
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_run_is_unknown_under_hold() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    drop_mid_handler(&world, &operation).await;
    assert_eq!(world.unknown_reason(&operation).await, Some(UnknownReason::Dropped));
    let ran = world.engine.run(&operation, async |_| panic!("nobody may run it"));
    assert!(matches!(ran.await.unwrap(), Ran::Unknown(_)));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_run_is_taken_over_at_once_under_rerun_and_resume() {
    for on_lapsed in [OnLapsed::Rerun, OnLapsed::Resume] {
        let world = World::new();
        let operation = operation(policy(on_lapsed));
        drop_mid_handler(&world, &operation).await;
        assert_eq!(world.engine.load().executing, 0);
        runs_again_as_second_attempt(&world, &operation).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_detached_run_survives_its_caller() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let caller = world.engine.run_detached(operation.clone(), async |_| {
        pass(3 * LEASE).await;
        Ok(done())
    });
    assert!(tokio::time::timeout(SECOND, caller).await.is_err(), "the caller goes away");
    let ran = world.engine.run(&operation, async |_| panic!("it is running"));
    assert!(matches!(ran.await.unwrap(), Ran::Busy(_)));
    pass(3 * LEASE).await;
    let ran = world.engine.run(&operation, async |_| panic!("it ran without its caller"));
    assert_eq!(ran.await.unwrap(), Ran::Replayed(done()));
}

#[tokio::test(start_paused = true)]
async fn a_detached_run_starts_without_being_awaited() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    drop(world.engine.run_detached(operation.clone(), async |_| Ok(done())));
    breathe().await;
    assert_eq!(world.state(&operation).await, StateName::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_begin_dropped_on_its_way_leaves_no_claim() {
    let far = Duration::from_secs(5);
    for lag in [Lag { there: far, back: Duration::ZERO }, Lag { there: Duration::ZERO, back: far }]
    {
        let world = World::new();
        let operation = operation(policy(OnLapsed::Hold));
        let store = Slow::new(world.store.clone(), move |step| match step.action {
            Action::Begin(_) => lag,
            _ => Lag::default(),
        });
        let slow = seeded(Engine::builder(store), 2).build();
        let run = slow.run(&operation, async |_| panic!("its caller is gone"));
        assert!(tokio::time::timeout(SECOND, run).await.is_err());
        // The begin is repeated, now to its end, and what it claimed is released.
        pass(2 * far).await;
        assert_eq!(world.state(&operation).await, StateName::Absent);
        let ran = world.engine.run(&operation, async |_| Ok(done())).await;
        assert_eq!(ran.unwrap(), Ran::Executed(done()));
        assert_eq!(slow.load().executing, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_dropped_while_it_completes_never_loses_a_stored_outcome() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun));
    let store = Slow::new(world.store.clone(), |step| Lag {
        there: Duration::ZERO,
        back: match step.action {
            Action::Complete(..) => 5 * SECOND,
            _ => Duration::ZERO,
        },
    });
    let slow = seeded(Engine::builder(store), 2).build();
    let run = slow.run(&operation, async |_| Ok(done()));
    assert!(tokio::time::timeout(SECOND, run).await.is_err());
    breathe().await;
    let ran = world.engine.run(&operation, async |_| panic!("it is stored"));
    assert_eq!(ran.await.unwrap(), Ran::Replayed(done()));
}

/// A store that takes its time before it completes anything.
fn slow_to_complete(world: &World) -> Engine {
    let store = Slow::new(world.store.clone(), |step| match step.action {
        Action::Complete(..) => Lag { there: 5 * SECOND, back: Duration::ZERO },
        _ => Lag::default(),
    });
    seeded(Engine::builder(store), 2).build()
}

#[tokio::test(start_paused = true)]
async fn a_run_dropped_while_its_outcome_is_on_its_way_stores_it() {
    for on_lapsed in [OnLapsed::Rerun, OnLapsed::Resume, OnLapsed::Hold] {
        let world = World::new();
        let operation = operation(policy(on_lapsed));
        let slow = slow_to_complete(&world);
        let run = slow.run(&operation, async |_| Ok(done()));
        assert!(tokio::time::timeout(SECOND, run).await.is_err());
        let ran = world.engine.run(&operation, async |_| panic!("it was executed")).await;
        assert!(matches!(ran, Ok(Ran::Busy(_))), "{on_lapsed:?} {ran:?}");
        pass(6 * SECOND).await;
        let ran = world.engine.run(&operation, async |_| panic!("it was executed")).await;
        assert_eq!(ran.unwrap(), Ran::Replayed(done()), "{on_lapsed:?}");
        assert_eq!(slow.load().executing, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_dropped_while_its_outcome_is_on_its_way_stores_it() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let slow = slow_to_complete(&world);
    let Begun::Claimed(mut claim) = slow.begin(&operation).await.unwrap() else {
        panic!("it must be claimed")
    };
    assert!(tokio::time::timeout(SECOND, claim.complete(done())).await.is_err());
    drop(claim);
    pass(6 * SECOND).await;
    assert_eq!(world.state(&operation).await, StateName::Completed);
    assert_eq!(slow.load().executing, 0);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_on_its_way_survives_its_caller_and_a_store_that_is_away() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    world.faults.always("complete", Fault::LostRequest);
    let run = world.engine.run(&operation, async |_| Ok(done()));
    assert!(tokio::time::timeout(SECOND, run).await.is_err());
    pass(3 * LEASE).await;
    assert_eq!(world.state(&operation).await, StateName::InProgress, "it is renewed");
    world.faults.heal();
    pass(6 * SECOND).await;
    assert_eq!(world.state(&operation).await, StateName::Completed);
    let so_far = world.calls.count();
    pass(LEASE).await;
    assert_eq!(world.calls.count(), so_far, "then it is left alone");
}

#[tokio::test(start_paused = true)]
async fn an_outcome_on_its_way_survives_its_caller_and_a_store_that_hangs() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let tries = Count::default();
    let store = Hooked::new(world.store.clone(), move |step| -> Before {
        if matches!(step.action, Action::Complete(..)) && tries.add() <= 3 {
            return Box::pin(std::future::pending());
        }
        Box::pin(async {})
    });
    let engine = seeded(Engine::builder(store), 2).build();
    let run = engine.run(&operation, async |_| Ok(done()));
    assert!(tokio::time::timeout(SECOND, run).await.is_err());
    pass(2 * LEASE).await;
    assert_eq!(world.state(&operation).await, StateName::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_run_dropped_while_it_says_why_it_ended_still_says_it() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold)).with_handler_timeout(SECOND);
    let store = Slow::new(world.store.clone(), |step| match step.action {
        Action::Abandon(..) => Lag { there: 5 * SECOND, back: Duration::ZERO },
        _ => Lag::default(),
    });
    let slow = seeded(Engine::builder(store), 2).build();
    let run = slow.run(&operation, async |_| std::future::pending().await);
    assert!(tokio::time::timeout(2 * SECOND, run).await.is_err());
    pass(6 * SECOND).await;
    assert_eq!(world.unknown_reason(&operation).await, Some(UnknownReason::TimedOut));
}

#[tokio::test(start_paused = true)]
async fn a_recovery_point_on_its_way_is_saved_though_its_handler_is_dropped() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Resume));
    let store = Slow::new(world.store.clone(), |step| match step.action {
        Action::Checkpoint(..) => Lag { there: 5 * SECOND, back: Duration::ZERO },
        _ => Lag::default(),
    });
    let slow = seeded(Engine::builder(store), 2).build();
    let run = slow.run(&operation, async |context| {
        context.save("charged", "receipt 17").await?;
        Ok(done())
    });
    assert!(tokio::time::timeout(SECOND, run).await.is_err());
    pass(6 * SECOND).await;
    let ran = world.engine.run(&operation, async |context| {
        assert_eq!(context.checkpoint().unwrap().name(), "charged");
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn a_panic_goes_on_and_the_operation_is_unknown_under_hold() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let said = panicking(&world, &operation, async |_| {
        pass(SECOND).await;
        panic!("in the middle")
    });
    assert_eq!(said.await, "in the middle");
    assert_eq!(world.unknown_reason(&operation).await, Some(UnknownReason::Panicked));
    assert_eq!(world.engine.load().executing, 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_goes_on_and_the_operation_is_free_under_rerun_and_resume() {
    for on_lapsed in [OnLapsed::Rerun, OnLapsed::Resume] {
        let world = World::new();
        let operation = operation(policy(on_lapsed));
        let said = panicking(&world, &operation, async |_| panic!("at the start"));
        assert_eq!(said.await, "at the start");
        runs_again_as_second_attempt(&world, &operation).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_before_the_handlers_future_exists_counts_too() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let said = panicking(&world, &operation, |context| {
        if context.attempt() == 1 {
            panic!("before the future")
        }
        std::future::pending()
    });
    assert_eq!(said.await, "before the future");
    assert_eq!(world.unknown_reason(&operation).await, Some(UnknownReason::Panicked));
}

#[tokio::test(start_paused = true)]
async fn a_detached_run_hands_its_panic_to_the_caller() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let caller = world.engine.run_detached(operation.clone(), async |_| panic!("detached"));
    assert!(panics(caller).await, "the panic goes on");
    assert_eq!(world.unknown_reason(&operation).await, Some(UnknownReason::Panicked));
}

/// Whether a future panics.
async fn panics(future: impl Future + Send) -> bool {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        match polled {
            Ok(std::task::Poll::Pending) => std::task::Poll::Pending,
            Ok(std::task::Poll::Ready(_)) => std::task::Poll::Ready(false),
            Err(_) => std::task::Poll::Ready(true),
        }
    })
    .await
}
