//! A store that one runtime opened, and others use.

use std::cell::Cell;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures_util::future::{join, join_all};
use justonce_core::store::{Observed, Records, Seen};
use justonce_core::{Action, Engine, Fence, OnLapsed, Outcome, Ran, Step};
use justonce_postgres::PostgresStore;
use justonce_testbed::{PostgresOptions, PostgresServer};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::stage::{PROMPTLY, Stage, begin, claim, complete, operation, rerun};

const LEASE: Duration = Duration::from_millis(1200);

fn parallel() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

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

/// A runtime that is blocked serves no connection of its own; renewals need none of those.
#[test]
fn leases_are_renewed_while_the_only_thread_of_the_runtime_is_blocked() {
    runtime().block_on(async {
        let server = PostgresServer::start(PostgresOptions::default()).unwrap();
        let store = PostgresStore::builder(server.url()).connections(8).open().await.unwrap();
        let (renewed, signal) = mpsc::channel();
        let observer = move |seen: Seen<'_>| {
            if seen.call == "renew" && seen.result.is_ok() {
                let _ = renewed.send(());
            }
        };
        let engine = Engine::new(Observed::new(store.clone(), observer));
        // Leave idle connections behind that this runtime serves: renewals are not batched.
        let short = rerun("short");
        let renew = Step::new(short.id(), Action::Renew(claim(&store, &short).await));
        join_all((0..8).map(|_| store.apply(&renew))).await;
        let long = operation("long", OnLapsed::Hold, LEASE);
        let run = engine.run(&long, async |_| {
            // As many as four leases need; it blocks the thread on purpose.
            let counted = (0..12).all(|_| signal.recv_timeout(PROMPTLY).is_ok());
            assert!(counted, "the lease is not renewed");
            Ok(Outcome::bytes("done"))
        });
        assert_eq!(run.await.unwrap(), Ran::Executed(Outcome::bytes("done")));
    });
}

/// An engine that ends takes its runtime with it, and the connections that it served.
#[test]
fn an_engine_that_ends_takes_no_connection_from_the_next_one() {
    parallel().block_on(async {
        let stage = Stage::new().await;
        for number in 0..40 {
            let operation = rerun(&format!("ship-{number}"));
            let engine = Engine::new(stage.store.clone());
            let begun = engine.begin_or_wait(&operation).await.unwrap();
            drop(engine);
            // The claim is abandoned in the background.
            drop(begun);
            let next = Engine::new(stage.store.clone());
            let begun = timeout(PROMPTLY, next.begin_or_wait(&operation)).await;
            assert!(matches!(begun, Ok(Ok(_))), "{number}: {begun:?}");
        }
    });
}

/// Each runtime has connections of its own: one that needs another takes the place of an idle one.
#[test]
fn all_runtimes_together_keep_to_the_limit() {
    let opener = parallel();
    let stage = opener.block_on(Stage::new());
    let store = PostgresStore::builder(stage.server.url()).connections(3);
    let store = opener.block_on(store.open()).unwrap();
    let ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'justonce'";
    let count = || stage.psql(ours).parse::<usize>().unwrap();
    let before = count();
    let callers = (0..12).map(|caller| {
        let store = store.clone();
        thread::spawn(move || {
            runtime().block_on(async {
                for number in 0..20 {
                    claim(&store, &rerun(&format!("{caller}-{number}"))).await;
                }
            });
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut most = 0;
    while !callers.iter().all(thread::JoinHandle::is_finished) {
        most = most.max(count());
    }
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    // The server may still show some that are closed.
    assert!(most <= before + 3 + 3, "{most} after {before}");
}

/// Where the server takes no more connections, fewer are tried for a moment. It ends by the clock,
/// whatever the runtime does that was refused.
#[test]
fn what_is_not_tried_for_a_moment_is_tried_again_though_that_runtime_is_blocked() {
    let settings = [("superuser_reserved_connections", "0"), ("max_wal_senders", "0")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let options = PostgresOptions { max_connections: 6, settings, ..Default::default() };
    let server = PostgresServer::start(options).unwrap();
    let (url, others) = (server.url(), parallel());
    let store = PostgresStore::builder(&*url).connections(8);
    let store = others.block_on(store.open()).unwrap();
    let taken: Vec<_> = (0..5)
        .map(|_| {
            loop {
                let connected = tokio_postgres::connect(&url, tokio_postgres::NoTls);
                if let Ok((client, connection)) = others.block_on(connected) {
                    others.spawn(connection);
                    break client;
                }
            }
        })
        .collect();
    let (blocked, is_blocked) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let blocks = thread::spawn({
        let store = store.clone();
        move || {
            let is_over = Cell::new(false);
            // One of them has the only connection there is.
            let steps = join_all((0..2).map(|number| {
                let (store, is_over) = (&store, &is_over);
                async move {
                    let renew = Action::Renew(Fence::new(1));
                    let renew = Step::new(rerun(&format!("{number}")).id(), renew);
                    while !is_over.get() {
                        let _ = store.apply(&renew).await;
                    }
                }
            }));
            let blocks = async {
                // Until they have been refused more.
                tokio::time::sleep(Duration::from_millis(500)).await; // tidy: allow-sleep: unseen
                blocked.send(()).unwrap();
                // It blocks the thread on purpose.
                let _ = may_go_on.recv();
                is_over.set(true);
            };
            runtime().block_on(join(steps, blocks));
        }
    });
    is_blocked.recv().unwrap();
    // There is room now.
    drop(taken);
    let done = others.block_on(async {
        let mut done = Ok(());
        // Each waits for five seconds, and nothing is withheld for longer than one.
        for number in 0..2 {
            done = store.apply(&begin(&rerun(&format!("after-{number}")))).await.map(drop);
        }
        done
    });
    go_on.send(()).unwrap();
    blocks.join().unwrap();
    assert!(done.is_ok(), "seven of eight connections are free: {done:?}");
}

/// Steps of a runtime that wait for a connection while it is blocked do not take those that become
/// free: they cannot use them.
#[test]
fn steps_that_wait_on_a_blocked_runtime_keep_no_connection_from_others() {
    let others = parallel();
    let stage = others.block_on(Stage::new());
    let store = PostgresStore::builder(stage.server.url()).connections(4);
    let store = others.block_on(store.open()).unwrap();
    let url = stage.server.url();
    let (lock, connection) =
        others.block_on(tokio_postgres::connect(&url, tokio_postgres::NoTls)).unwrap();
    others.spawn(connection);
    let locked = lock.batch_execute("BEGIN; LOCK TABLE justonce.records IN EXCLUSIVE MODE");
    others.block_on(locked).unwrap();
    let renew = |name: &str| Step::new(rerun(name).id(), Action::Renew(Fence::new(1)));
    let start = |number: usize| {
        let (store, renew) = (store.clone(), renew(&format!("first-{number}")));
        others.spawn(async move { store.apply(&renew).await })
    };
    // All connections are in use, on this runtime.
    let first: Vec<_> = (0..4).map(start).collect();
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    while stage.psql(waits) != "4" {}
    let (blocked, is_blocked) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let blocks = thread::spawn({
        let (store, renew) = (store.clone(), renew("second"));
        move || {
            let steps = join_all((0..4).map(|_| store.apply(&renew)));
            let blocks = async {
                blocked.send(()).unwrap();
                // It blocks the thread on purpose.
                let _ = may_go_on.recv();
            };
            runtime().block_on(join(steps, blocks));
        }
    });
    is_blocked.recv().unwrap();
    others.block_on(lock.batch_execute("COMMIT")).unwrap();
    let done = others.block_on(async {
        join_all(first).await;
        store.apply(&renew("third")).await
    });
    go_on.send(()).unwrap();
    blocks.join().unwrap();
    assert!(done.is_ok(), "all four connections are free: {done:?}");
}
