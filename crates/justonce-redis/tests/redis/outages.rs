//! A server that is killed, restarted or stands still.

use std::time::Duration;

use justonce_core::store::{Maintenance, Records};
use justonce_core::{
    Action, Answer, Effect, Lost, NoteKind, OnLapsed, Outcome, Step, StoreErrorKind,
};
use justonce_redis::RedisStore;
use justonce_testbed::RedisServer;
use tokio::time::Instant;

use crate::world::{
    assert_passing, begin, begin_step, claim, complete, is_busy, operation, plain, replayed, run,
    until_ok,
};

/// What is acknowledged is on disk.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_kill_and_fences_go_on_growing() {
    let server = RedisServer::start_with(&DURABLE).unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    let done = plain("done");
    let mut newest = run(&store, &done, "done").await;
    for round in 0..3 {
        let running = plain(&format!("running-{round}"));
        newest = newest.max(claim(&store, &running).await.fence);
        server.kill();
        let error = begin(&store, &plain("away")).await.unwrap_err();
        assert_passing(&error);
        server.restart().unwrap();
        until_ok(|| store.ready()).await;
        assert_eq!(replayed(&store, &done).await, Some(Outcome::bytes("done")));
        assert!(is_busy(&begin(&store, &running).await.unwrap()));
        let next = claim(&store, &plain(&format!("next-{round}"))).await.fence;
        assert!(next > newest, "{next} after {newest}");
        newest = next;
    }
}

#[tokio::test]
async fn a_forgetful_server_forgets_claims_and_never_repeats_a_fence() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    let operation = plain("forgotten");
    let old = claim(&store, &operation).await.fence;
    server.kill();
    server.restart().unwrap();
    until_ok(|| store.ready()).await;
    let new = claim(&store, &operation).await.fence;
    assert!(new > old, "{new} after {old}: the server's clock stands behind the counter");
    let late = complete(&store, &operation, old, "late").await.unwrap();
    assert_eq!(late, Answer::Lost(Lost::Superseded));
}

#[tokio::test]
async fn while_the_server_is_away_steps_fail_at_once_and_not_applied() {
    let server = RedisServer::start_with(&DURABLE).unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    let operation = plain("away");
    server.kill();
    // Whether a step that was on its way took place is not known; of all later ones it is.
    let _ = begin(&store, &operation).await.unwrap_err();
    let start = Instant::now();
    for _ in 0..100 {
        let error = begin(&store, &operation).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert_eq!(error.effect(), Effect::NotApplied, "{error}");
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_passing(&store.ready().await.unwrap_err());
    assert_passing(
        &store.settled(&operation.id(), justonce_core::Fence::new(1)).await.unwrap_err(),
    );
    server.restart().unwrap();
    until_ok(|| begin(&store, &operation)).await;
}

#[tokio::test]
async fn a_repeated_begin_whose_reply_was_lost_gets_its_claim() {
    let server = RedisServer::start_with(&DURABLE).unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    let step = begin_step(&plain("repeated"));
    let Answer::Claimed(first) = store.apply(&step).await.unwrap() else {
        panic!("the key is free");
    };
    server.kill();
    server.restart().unwrap();
    let answer = until_ok(|| store.apply(&step)).await;
    assert!(matches!(&answer, Answer::Claimed(again) if again.fence == first.fence), "{answer:?}");
}

/// Nobody knows of a claim that is taken for a caller who has gone.
#[tokio::test]
async fn what_waited_for_a_connection_is_not_sent_once_its_caller_has_gone() {
    let server = RedisServer::start_with(&DURABLE).unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    server.kill();
    assert_passing(&begin(&store, &plain("away")).await.unwrap_err());
    server.restart().unwrap();
    server.pause().unwrap();
    let gone = plain("gone");
    let impatient = tokio::time::timeout(Duration::from_millis(300), begin(&store, &gone)).await;
    assert!(impatient.is_err(), "{impatient:?}");
    server.resume().unwrap();
    let last = plain("last");
    until_ok(|| begin(&store, &last)).await;
    assert_eq!(store.get(&gone.id()).await.unwrap(), None);
}

/// The server stands still longer than a lease. When it goes on, the steps that waited in its
/// socket are taken at its time: the lease is over.
#[tokio::test]
async fn a_server_that_stood_still_longer_than_the_lease_fences_the_old_owner_off() {
    let server = RedisServer::start().unwrap();
    let open =
        || RedisStore::builder(server.url()).reply_timeout(Duration::from_millis(200)).open();
    let (old, new) = (open().await.unwrap(), open().await.unwrap());
    let lease = Duration::from_millis(300);
    let rerun = operation("rerun", lease, OnLapsed::Rerun);
    let hold = operation("hold", lease, OnLapsed::Hold);
    let (first, held) = (claim(&old, &rerun).await.fence, claim(&old, &hold).await.fence);
    server.pause().unwrap();
    let renewal = Step::new(rerun.id(), Action::Renew(first));
    let error = old.apply(&renewal).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::TimedOut, "{error}");
    assert_eq!(error.effect(), Effect::MayHaveBeenApplied, "{error}");
    tokio::time::sleep(lease).await; // tidy: allow-sleep: the lease lapses by the server's clock
    server.resume().unwrap();

    let second = until_ok(|| begin(&new, &rerun)).await;
    // The renewal that waited in the socket may have come first; then its lease is waited for.
    let second = match second {
        Answer::Claimed(claimed) => claimed.fence,
        _ => {
            tokio::time::sleep(lease).await; // tidy: allow-sleep: the server's clock again
            claim(&new, &rerun).await.fence
        }
    };
    assert!(second > first);
    let late = until_ok(|| complete(&old, &rerun, first, "late")).await;
    assert_eq!(late, Answer::Lost(Lost::Superseded));
    assert_eq!(complete(&new, &rerun, second, "in time").await.unwrap(), Answer::Applied);
    let stored = old.get(&rerun.id()).await.unwrap().unwrap();
    let refused = stored
        .timeline
        .notes()
        .iter()
        .any(|note| note.fence == first && matches!(note.kind, NoteKind::Refused(_)));
    assert!(refused, "{:?}", stored.timeline);

    let answer = begin(&new, &hold).await.unwrap();
    assert!(matches!(&answer, Answer::Held(unknown) if unknown.fence == held), "{answer:?}");
}

#[tokio::test]
async fn a_connection_that_is_cut_is_made_anew() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    for round in 0..20 {
        let operation = plain(&format!("cut-{round}"));
        let step = begin_step(&operation);
        server.cli(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        let answer = until_ok(|| store.apply(&step)).await;
        let Answer::Claimed(claimed) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(claimed.attempt, 1, "the first try and its repetition are one");
    }
}

#[tokio::test]
async fn a_password_that_is_missing_is_an_operators_matter() {
    let server = RedisServer::start().unwrap();
    server.cli(&["CONFIG", "SET", "requirepass", "secret"]).unwrap();
    let error = RedisStore::builder(server.url()).open().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Stopped, Effect::NotApplied));
    let url = server.url().replace("redis://", "redis://:secret@");
    let store = RedisStore::builder(url).open().await.unwrap();
    run(&store, &plain("inside"), "done").await;
}

#[tokio::test]
async fn opening_where_nobody_listens_fails_at_once() {
    let server = RedisServer::start().unwrap();
    server.kill();
    let error = RedisStore::builder(server.url()).open().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Unavailable, Effect::NotApplied));
}

/// A server that becomes a replica sends away whoever waits for its own replicas. The caller tries
/// again, for the step is safe to repeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demotion_while_replicas_are_waited_for_passes() {
    let (server, primary) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    let store = RedisStore::builder(server.url())
        .wait_replicas(1, Duration::from_secs(20))
        .open()
        .await
        .unwrap();
    let step = begin_step(&plain("demoted"));
    let begun = tokio::spawn(async move { store.apply(&step).await });
    while server.info("clients", "blocked_clients").unwrap() == "0" {
        tokio::task::yield_now().await;
    }
    server.cli(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]).unwrap();
    let error = begun.await.unwrap().unwrap_err();
    assert_passing(&error);
    assert_eq!(error.effect(), Effect::MayHaveBeenApplied, "{error}");
}
