//! Bounds in time and number: the handler's timeout and the engine's places.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::engine::{Limits, RunError};
use justonce_core::{OnLapsed, Operation, Ran, StateName, UnknownReason};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::common::handlers::{Count, Dropped, done};
use crate::common::world::{SECOND, World, breathe, named, operation, pass, policy};

fn narrow(max_concurrent: usize) -> World {
    World::with(Limits { max_concurrent, queue_timeout: 5 * SECOND, ..Limits::default() })
}

/// An operation that runs until it is told to end.
fn occupy(
    world: &World,
    operation: &Operation,
    end: &Arc<Notify>,
) -> JoinHandle<Result<Ran, RunError>> {
    let (engine, operation) = (world.engine.clone(), operation.clone());
    let end = Arc::clone(end);
    tokio::spawn(async move {
        let handler = async move |_| {
            end.notified().await;
            Ok(done())
        };
        engine.run(&operation, handler).await
    })
}

async fn time_out(world: &World, operation: &Operation) {
    let dropped = Dropped::default();
    let guard = dropped.guard();
    let ran = world.engine.run(operation, async move |_| {
        let _guard = guard;
        std::future::pending().await
    });
    assert_eq!(ran.await.unwrap(), Ran::Abandoned(UnknownReason::TimedOut));
    assert!(dropped.get(), "the handler is dropped where it waits");
}

#[tokio::test(start_paused = true)]
async fn a_handler_out_of_time_is_unknown_under_hold() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold)).with_handler_timeout(3 * SECOND);
    time_out(&world, &operation).await;
    assert_eq!(world.unknown_reason(&operation).await, Some(UnknownReason::TimedOut));
    let ran = world.engine.run(&operation, async |_| panic!("nobody may run it"));
    assert!(matches!(ran.await.unwrap(), Ran::Unknown(_)));
}

#[tokio::test(start_paused = true)]
async fn a_handler_out_of_time_is_run_again_under_rerun_and_resume() {
    for on_lapsed in [OnLapsed::Rerun, OnLapsed::Resume] {
        let world = World::new();
        let operation = operation(policy(on_lapsed)).with_handler_timeout(3 * SECOND);
        time_out(&world, &operation).await;
        let ran = world.engine.run(&operation, async |context| {
            assert_eq!((context.attempt(), context.fence().get()), (2, 2));
            Ok(done())
        });
        assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_within_its_time_is_left_alone() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold)).with_handler_timeout(3 * SECOND);
    let ran = world.engine.run(&operation, async |_| {
        pass(Duration::from_millis(2_999)).await;
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn never_more_handlers_at_once_than_places() {
    let world = narrow(3);
    let (now, most) = (Count::default(), Count::default());
    let mut all = tokio::task::JoinSet::new();
    for number in 0..12 {
        let operation = named(&format!("order-{number}"), policy(OnLapsed::Rerun));
        let (engine, now, most) = (world.engine.clone(), now.clone(), most.clone());
        all.spawn(async move {
            let handler = async move |_| {
                most.raise(now.add());
                pass(SECOND).await;
                now.sub();
                Ok(done())
            };
            engine.run(&operation, handler).await.unwrap()
        });
    }
    breathe().await;
    assert_eq!(world.engine.load().executing, 3);
    let ended = all.join_all().await;
    assert!(ended.iter().all(|ran| *ran == Ran::Executed(done())));
    assert_eq!((most.get(), world.engine.load().executing), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn queueing_takes_no_claim() {
    let world = narrow(1);
    let end = Arc::new(Notify::new());
    let first = occupy(&world, &named("first", policy(OnLapsed::Hold)), &end);
    breathe().await;
    let queued = named("second", policy(OnLapsed::Hold));
    let second = occupy(&world, &queued, &end);
    pass(SECOND).await;
    assert_eq!(world.state(&queued).await, StateName::Absent);
    let elsewhere = world.second();
    let ran = elsewhere.engine.run(&queued, async |_| Ok(done())).await;
    assert_eq!(ran.unwrap(), Ran::Executed(done()), "another engine has the place for it");
    end.notify_one();
    assert_eq!(first.await.unwrap().unwrap(), Ran::Executed(done()));
    assert_eq!(second.await.unwrap().unwrap(), Ran::Replayed(done()));
}

#[tokio::test(start_paused = true)]
async fn replays_go_on_while_all_places_are_taken() {
    let world = narrow(1);
    let before = named("before", policy(OnLapsed::Rerun));
    let ran = world.engine.run(&before, async |_| Ok(done())).await;
    assert_eq!(ran.unwrap(), Ran::Executed(done()));
    let end = Arc::new(Notify::new());
    let running = named("running", policy(OnLapsed::Rerun));
    let first = occupy(&world, &running, &end);
    breathe().await;
    let ran = world.engine.run(&before, async |_| panic!("it runs once"));
    assert_eq!(ran.await.unwrap(), Ran::Replayed(done()));
    let ran = world.engine.run(&running, async |_| panic!("it is running"));
    assert!(matches!(ran.await.unwrap(), Ran::Busy(_)));
    let peeked = world.engine.peek(&before).await.unwrap().unwrap();
    assert_eq!(peeked.completed(), Some(&done()));
    end.notify_one();
    assert_eq!(first.await.unwrap().unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_does_not_move_is_an_overload() {
    let world = narrow(1);
    let end = Arc::new(Notify::new());
    let first = occupy(&world, &named("first", policy(OnLapsed::Hold)), &end);
    breathe().await;
    let second = named("second", policy(OnLapsed::Hold));
    let start = tokio::time::Instant::now();
    let ran = world.engine.run(&second, async |_| panic!("there is no place"));
    let error = ran.await.unwrap_err();
    let expected = (1, 5 * SECOND);
    assert!(
        matches!(error, RunError::Overloaded { limit, waited } if (limit, waited) == expected),
        "{error:?}"
    );
    assert_eq!(start.elapsed(), 5 * SECOND);
    assert_eq!(world.state(&second).await, StateName::Absent);
    end.notify_one();
    assert_eq!(first.await.unwrap().unwrap(), Ran::Executed(done()));
    let ran = world.engine.run(&second, async |_| Ok(done())).await;
    assert_eq!(ran.unwrap(), Ran::Executed(done()), "the place is free again");
}

#[tokio::test(start_paused = true)]
async fn waiting_duplicates_take_no_place() {
    let world = narrow(2);
    let end = Arc::new(Notify::new());
    let running = named("first", policy(OnLapsed::Hold));
    let first = occupy(&world, &running, &end);
    breathe().await;
    let patient = running.on_concurrent(justonce_core::OnConcurrent::Wait(60 * SECOND));
    let waiting: Vec<_> = (0..10).map(|_| occupy(&world, &patient, &end)).collect();
    breathe().await;
    let load = world.engine.load();
    assert_eq!((load.executing, load.waiting), (1, 10));
    let other = named("second", policy(OnLapsed::Hold));
    let ran = world.engine.run(&other, async |_| Ok(done())).await;
    assert_eq!(ran.unwrap(), Ran::Executed(done()));
    end.notify_one();
    assert_eq!(first.await.unwrap().unwrap(), Ran::Executed(done()));
    for one in waiting {
        assert_eq!(one.await.unwrap().unwrap(), Ran::Replayed(done()));
    }
}
