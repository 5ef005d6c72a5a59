//! No runtime of a caller's is needed once a claim is taken: each may end, or block, on its own.
//!
//! These tests run on the machine's own time, with several runtimes, as a server with one runtime
//! for each of its threads does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use justonce_core::engine::Begun;
use justonce_core::memory::MemoryStore;
use justonce_core::store::Records;
use justonce_core::{Action, Engine, HeldClaim, OnLapsed, Operation, Ran, StateName, TimerClock};
use tokio::runtime::{Builder, Runtime};

use crate::common::handlers::done;
use crate::common::hooked::{Before, Hooked};
use crate::common::shared::Shared;
use crate::common::world::{SECOND, START, named, policy};

/// How long a signal may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn memory() -> Shared {
    Shared(Arc::new(MemoryStore::new(TimerClock::starting_at(START))))
}

fn order(name: &str) -> Operation {
    named(name, policy(OnLapsed::Hold).lease(Duration::from_millis(300)))
}

async fn claim(engine: &Engine, operation: &Operation) -> HeldClaim {
    let begun = engine.begin(operation).await.unwrap();
    let Begun::Claimed(claim) = begun else { panic!("it must be claimed, not {begun:?}") };
    claim
}

/// An engine that signals each renewal of one operation before it reaches the store.
fn signalling(store: Shared, about: &Operation) -> (Engine, mpsc::Receiver<()>) {
    let (renewing, signal) = mpsc::channel();
    let id = about.id();
    let store = Hooked::new(store, move |step| -> Before {
        if step.id == id && matches!(step.action, Action::Renew(_)) {
            // The test may have ended already; then nobody listens.
            let _ = renewing.send(());
        }
        Box::pin(async {})
    });
    (Engine::new(store), signal)
}

/// A run that lasts for as many renewals as ten leases need, on a thread of its own.
fn long_run(
    engine: &Engine,
    operation: &Operation,
    renewed: mpsc::Receiver<()>,
) -> (thread::JoinHandle<Ran>, mpsc::Receiver<()>) {
    let (engine, operation) = (engine.clone(), operation.clone());
    let (started, running) = mpsc::channel();
    let thread = thread::spawn(move || {
        let run = engine.run(&operation, async |_| {
            started.send(()).unwrap();
            let counted = tokio::task::spawn_blocking(move || {
                (0..30).all(|_| renewed.recv_timeout(PATIENCE).is_ok())
            });
            assert!(counted.await.unwrap(), "nobody renews it any more");
            Ok(done())
        });
        runtime().block_on(run).unwrap()
    });
    (thread, running)
}

#[test]
fn the_runtime_that_began_first_may_end() {
    let (first, second) = (order("first"), order("second"));
    let store = memory();
    let (engine, renewed) = signalling(store.clone(), &second);
    let beginner = runtime();
    let claim = beginner.block_on(claim(&engine, &first));
    let (thread, running) = long_run(&engine, &second, renewed);
    running.recv_timeout(PATIENCE).unwrap();
    drop(beginner);
    assert_eq!(thread.join().unwrap(), Ran::Executed(done()));
    // Its own claim outlived its runtime too.
    let state = runtime().block_on(store.get(&first.id())).unwrap();
    assert_eq!(state.unwrap().entry.state_name(), StateName::InProgress);
    drop(claim);
}

#[test]
fn the_runtime_that_began_first_may_block() {
    let (first, second) = (order("first"), order("second"));
    let (engine, renewed) = signalling(memory(), &second);
    let (go_on, blocked) = mpsc::channel::<()>();
    let (began, begun) = mpsc::channel();
    let blocking = {
        let engine = engine.clone();
        thread::spawn(move || {
            runtime().block_on(async {
                let mut claim = claim(&engine, &first).await;
                began.send(()).unwrap();
                blocked.recv().unwrap();
                claim.complete(done()).await
            })
        })
    };
    begun.recv_timeout(PATIENCE).unwrap();
    let (thread, running) = long_run(&engine, &second, renewed);
    running.recv_timeout(PATIENCE).unwrap();
    assert_eq!(thread.join().unwrap(), Ran::Executed(done()));
    go_on.send(()).unwrap();
    assert!(blocking.join().unwrap().is_ok(), "it was renewed while it blocked its thread");
}

#[test]
fn an_outcome_is_stored_though_the_runtime_of_its_caller_ends() {
    let (store, order) = (memory(), order("order"));
    let (sending, sent) = mpsc::channel();
    let first = AtomicBool::new(true);
    let hooked = Hooked::new(store.clone(), move |step| -> Before {
        if !matches!(step.action, Action::Complete(..)) {
            return Box::pin(async {});
        }
        sending.send(()).unwrap();
        if first.swap(false, Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        Box::pin(async {})
    });
    let engine = Engine::new(hooked);
    let caller = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let run = {
        let _entered = caller.enter();
        engine.run_detached(order.clone(), async |_| Ok(done()))
    };
    sent.recv_timeout(PATIENCE).unwrap();
    caller.shutdown_background();
    drop(run);
    sent.recv_timeout(PATIENCE).unwrap();
    runtime().block_on(async { tokio::time::timeout(PATIENCE, engine.drained()).await }).unwrap();
    let stored = runtime().block_on(store.get(&order.id())).unwrap();
    assert_eq!(stored.unwrap().entry.state_name(), StateName::Completed);
}

#[test]
fn a_claim_dropped_without_a_runtime_is_given_up_at_once() {
    let (store, order) = (memory(), named("order", policy(OnLapsed::Hold)));
    let engine = Engine::new(store.clone());
    let claim = runtime().block_on(claim(&engine, &order));
    let fence = claim.fence();
    drop(claim);
    let settled =
        async { tokio::time::timeout(SECOND * 20, store.settled(&order.id(), fence)).await };
    runtime().block_on(settled).expect("well before its lease of half a minute").unwrap();
    let stored = runtime().block_on(store.get(&order.id())).unwrap();
    assert_eq!(stored.unwrap().entry.state_name(), StateName::Unknown);
}
