//! A store that one runtime opened, and others use.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use justonce_core::store::{Observed, Records, Seen};
use justonce_core::{Engine, OnLapsed, Outcome, Ran};
use justonce_redis::RedisStore;
use justonce_testbed::RedisServer;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{LOST_AFTER, begin, claim, complete, operation, plain, until_ok};

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
    let server = RedisServer::start().unwrap();
    let open = async { RedisStore::builder(server.url()).open().await };
    let store = opener.block_on(open).unwrap();
    let (renewed, signal) = mpsc::channel();
    let observer = move |seen: Seen<'_>| {
        if seen.call == "renew" && seen.result.is_ok() {
            // The test may have ended already; then nobody listens.
            let _ = renewed.send(());
        }
    };
    let engine = Engine::new(Observed::new(store, observer));
    let first = operation("first", LEASE, OnLapsed::Hold);
    let ran = opener.block_on(engine.run(&first, async |_| Ok(Outcome::empty())));
    assert!(matches!(ran, Ok(Ran::Executed(_))));
    let (started, running) = mpsc::channel();
    let long = thread::spawn(move || {
        let second = operation("second", LEASE, OnLapsed::Hold);
        let run = engine.run(&second, async |_| {
            started.send(()).unwrap();
            let counted = tokio::task::spawn_blocking(move || {
                // As many as four leases need.
                (0..12).all(|_| signal.recv_timeout(LOST_AFTER).is_ok())
            });
            assert!(counted.await.unwrap(), "nobody renews it any more");
            Ok(Outcome::bytes("done"))
        });
        runtime().block_on(run)
    });
    running.recv_timeout(LOST_AFTER).unwrap();
    drop(opener);
    assert_eq!(long.join().unwrap().unwrap(), Ran::Executed(Outcome::bytes("done")));
}

/// A store whose runtime has ended, and a server.
fn orphaned() -> (RedisServer, Arc<RedisStore>) {
    let opener = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = RedisServer::start().unwrap();
    let open = async { RedisStore::builder(server.url()).open().await };
    let store = Arc::new(opener.block_on(open).unwrap());
    drop(opener);
    (server, store)
}

#[test]
fn eviction_is_noticed_though_the_runtime_that_opened_the_store_has_ended() {
    let (server, store) = orphaned();
    runtime().block_on(async {
        let before = plain("before");
        until_ok(|| begin(&store, &before)).await;
        server.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
        let start = Instant::now();
        for number in 0.. {
            let begun = begin(&store, &plain(&format!("new-{number}"))).await;
            if begun.is_err_and(|error| error.to_string().contains("allkeys-lru")) {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "steps are still taken");
            sleep(Duration::from_millis(20)).await; // tidy: allow-sleep: the server tells nobody
        }
        // And it goes on by itself.
        server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
        let after = plain("after");
        until_ok(|| begin(&store, &after)).await;
    });
}

/// The runtime that opened the store is still there, but nothing drives it any more.
#[test]
fn eviction_is_noticed_though_the_runtime_that_opened_the_store_stands_still() {
    let server = RedisServer::start().unwrap();
    let opener = runtime();
    let every = Duration::from_millis(100);
    let open = RedisStore::builder(server.url()).check_every(every).open();
    let store = opener.block_on(open).unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    runtime().block_on(async {
        // As long as the opener's silence may be that of a busy machine.
        sleep(Duration::from_secs(2)).await; // tidy: allow-sleep: a runtime stands still
        let begun = begin(&store, &plain("new")).await;
        let error = begun.expect_err("the server may evict");
        assert!(error.to_string().contains("allkeys-lru"), "{error}");
        server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
        let after = plain("after");
        until_ok(|| begin(&store, &after)).await;
    });
    drop(opener);
}

#[test]
fn ends_are_heard_though_the_runtime_that_opened_the_store_has_ended() {
    let (_server, store) = orphaned();
    runtime().block_on(async {
        let (awaited, waiting) = (plain("awaited"), Arc::clone(&store));
        let before = plain("before");
        until_ok(|| begin(&store, &before)).await;
        let fence = claim(&store, &awaited).await.fence;
        let id = awaited.id();
        let waiter = tokio::spawn(async move { until_ok(|| waiting.settled(&id, fence)).await });
        sleep(Duration::from_millis(500)).await; // tidy: allow-sleep: nobody tells who waits
        complete(&store, &awaited, fence, "done").await.unwrap();
        let woken = timeout(Duration::from_secs(10), waiter).await;
        woken.expect("nobody woke the waiter").unwrap();
        // Nor is the next one told that nobody hears.
        let settled = store.settled(&id, fence).await;
        assert!(settled.is_ok(), "{settled:?}");
    });
}

#[test]
fn who_waits_is_woken_when_the_runtime_that_opened_the_store_ends() {
    let opener = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = RedisServer::start().unwrap();
    let open = async { RedisStore::builder(server.url()).open().await };
    let store = Arc::new(opener.block_on(open).unwrap());
    let user = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let awaited = plain("awaited");
    let fence = user.block_on(claim(&store, &awaited)).fence;
    let (id, waiting) = (awaited.id(), Arc::clone(&store));
    let waiter = user.spawn(async move { waiting.settled(&id, fence).await });
    let pause = async { sleep(Duration::from_millis(500)).await }; // tidy: allow-sleep: no signal
    user.block_on(pause);
    drop(opener);
    user.block_on(async {
        until_ok(|| complete(&store, &awaited, fence, "done")).await;
        let woken = timeout(Duration::from_secs(10), waiter).await;
        let _ = woken.expect("nobody woke the waiter").unwrap();
    });
}

/// A runtime that is blocked serves no connection of its own; renewals need none of those.
#[test]
fn leases_are_renewed_while_the_only_thread_of_the_runtime_is_blocked() {
    let server = RedisServer::start().unwrap();
    runtime().block_on(async {
        let store = RedisStore::builder(server.url()).open().await.unwrap();
        let (renewed, signal) = mpsc::channel();
        let observer = move |seen: Seen<'_>| {
            if seen.call == "renew" && seen.result.is_ok() {
                let _ = renewed.send(());
            }
        };
        let engine = Engine::new(Observed::new(store, observer));
        let long = operation("long", LEASE, OnLapsed::Hold);
        let run = engine.run(&long, async |_| {
            // As many as four leases need; it blocks the thread on purpose.
            let counted = (0..12).all(|_| signal.recv_timeout(LOST_AFTER).is_ok());
            assert!(counted, "the lease is not renewed");
            Ok(Outcome::bytes("done"))
        });
        assert_eq!(run.await.unwrap(), Ran::Executed(Outcome::bytes("done")));
    });
}

/// An engine that ends takes its runtime with it, and the connections that it served.
#[test]
fn an_engine_that_ends_takes_no_connection_from_the_next_one() {
    let server = RedisServer::start().unwrap();
    parallel().block_on(async {
        let store = Arc::new(RedisStore::builder(server.url()).open().await.unwrap());
        for number in 0..40 {
            let operation = operation(&format!("ship-{number}"), LEASE, OnLapsed::Rerun);
            let engine = Engine::builder_shared(store.clone()).build();
            let begun = engine.begin_or_wait(&operation).await.unwrap();
            drop(engine);
            // The claim is abandoned in the background.
            drop(begun);
            let next = Engine::builder_shared(store.clone()).build();
            let begun = timeout(LOST_AFTER, next.begin_or_wait(&operation)).await;
            assert!(matches!(begun, Ok(Ok(_))), "{number}: {begun:?}");
        }
        // Each runtime had connections of its own: what remains is this runtime's, and those of
        // engines that are just ending.
        let open = || {
            let clients = server.cli(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap();
            clients.lines().filter(|line| line.starts_with("id=")).count()
        };
        let closed = async {
            while open() >= 8 {
                tokio::task::yield_now().await;
            }
        };
        timeout(LOST_AFTER, closed).await.expect("connections of ended engines stay open");
    });
}

/// The check of the servers is taken over by a runtime that is blocked before it has ended.
#[test]
#[expect(clippy::disallowed_methods, reason = "a runtime stands still for that time")]
fn steps_are_taken_though_the_runtime_that_checks_the_servers_anew_is_blocked() {
    let server = RedisServer::start().unwrap();
    let opener = runtime();
    let every = Duration::from_millis(100);
    let open = RedisStore::builder(server.url()).check_every(every).open();
    let store = Arc::new(opener.block_on(open).unwrap());
    // As long as the opener's silence may be that of a busy machine.
    thread::sleep(Duration::from_secs(2)); // tidy: allow-sleep: a runtime stands still
    let (blocked, is_blocked) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let blocks = thread::spawn({
        let store = Arc::clone(&store);
        move || {
            runtime().block_on(async move {
                let one = plain("one");
                let step = begin(&store, &one);
                let blocks = async {
                    blocked.send(()).unwrap();
                    // It blocks the thread on purpose.
                    let _ = may_go_on.recv();
                };
                let _ = tokio::join!(biased; step, blocks);
            });
        }
    });
    is_blocked.recv().unwrap();
    let other = plain("other");
    let begun = runtime().block_on(async { timeout(LOST_AFTER, begin(&store, &other)).await });
    go_on.send(()).unwrap();
    blocks.join().unwrap();
    begun.expect("it waits for a runtime that is blocked").unwrap();
    drop(opener);
}
