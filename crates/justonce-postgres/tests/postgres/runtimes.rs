//! A store that one runtime opened, and others use.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use justonce_core::store::{Observed, Records, Seen};
use justonce_core::{Engine, OnLapsed, Outcome, Ran};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::stage::{PROMPTLY, Stage, complete, operation, rerun};

const LEASE: Duration = Duration::from_millis(1200);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The connections were served by the runtime that opened them, and that one ends.
#[test]
fn leases_are_renewed_though_the_runtime_that_opened_the_store_ends() {
    let opener = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let Stage { server: _server, store } = opener.block_on(Stage::new());
    let (renewed, signal) = mpsc::channel();
    let observer = move |seen: Seen<'_>| {
        if seen.call == "renew" && seen.result.is_ok() {
            // The test may have ended already; then nobody listens.
            let _ = renewed.send(());
        }
    };
    let engine = Engine::new(Observed::new(store, observer));
    let first = operation("first", OnLapsed::Hold, LEASE);
    let ran = opener.block_on(engine.run(&first, async |_| Ok(Outcome::empty())));
    assert!(matches!(ran, Ok(Ran::Executed(_))));
    let (started, running) = mpsc::channel();
    let long = thread::spawn(move || {
        let second = operation("second", OnLapsed::Hold, LEASE);
        let run = engine.run(&second, async |_| {
            started.send(()).unwrap();
            let counted = tokio::task::spawn_blocking(move || {
                // As many as four leases need.
                (0..12).all(|_| signal.recv_timeout(PROMPTLY).is_ok())
            });
            assert!(counted.await.unwrap(), "nobody renews it any more");
            Ok(Outcome::bytes("done"))
        });
        runtime().block_on(run)
    });
    running.recv_timeout(PROMPTLY).unwrap();
    drop(opener);
    assert_eq!(long.join().unwrap().unwrap(), Ran::Executed(Outcome::bytes("done")));
}

#[test]
fn who_waits_is_woken_though_the_runtime_that_waited_first_ends() {
    let parallel = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (first, second) = (parallel(), parallel());
    let stage = second.block_on(Stage::new());
    let wait = |runtime: &Runtime, name: &str| {
        let operation = rerun(name);
        let fence = runtime.block_on(stage.claim(&operation));
        let (store, id) = (stage.store.clone(), operation.id());
        let waiting = runtime.spawn(async move { store.settled(&id, fence).await });
        let announced = format!("SELECT waited FROM justonce.records WHERE id = '\\x{id}'");
        while stage.psql(&announced) != "t" {
            thread::yield_now();
        }
        (waiting, operation, fence)
    };
    let _listens = wait(&first, "a");
    let (waiting, operation, fence) = wait(&second, "b");
    drop(first);
    second.block_on(async {
        // A connection may have ended with the runtime.
        while stage.store.apply(&complete(&operation, fence)).await.is_err() {}
        let woken = timeout(PROMPTLY, waiting).await;
        let _ = woken.expect("nobody woke the waiter").unwrap();
    });
}
