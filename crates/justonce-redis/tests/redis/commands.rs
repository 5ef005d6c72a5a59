//! What a step costs, and what a server must be like.

use std::collections::BTreeMap;
use std::time::Duration;

use justonce_core::store::{Maintenance, Records};
use justonce_core::{Action, Answer, Engine, OnLapsed, Outcome, Ran, Step, StoreErrorKind};
use justonce_redis::RedisStore;
use justonce_testbed::RedisServer;

use crate::world::{begin, claim, complete, is_not_applied, operation, plain, replayed, run};

/// What clients called since the last reset, by the name of the command. The calls that scripts
/// make are those of EVALSHA.
pub(crate) fn called(server: &RedisServer) -> BTreeMap<String, u64> {
    let text = server.cli(&["INFO", "commandstats"]).unwrap();
    let rows = text.lines().filter_map(|line| line.trim().strip_prefix("cmdstat_"));
    let mut calls: BTreeMap<String, u64> = rows
        .filter_map(|row| {
            let (name, figures) = row.split_once(':')?;
            let calls = figures.split(',').find_map(|figure| figure.strip_prefix("calls="))?;
            Some((name.to_owned(), calls.parse().ok()?))
        })
        .collect();
    // Those of this test.
    for own in ["info", "config|resetstat"] {
        calls.remove(own);
    }
    calls
}

pub(crate) fn reset(server: &RedisServer) {
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
}

/// Commands that change something.
const WRITES: [&str; 8] = ["set", "mset", "zadd", "zrem", "del", "setrange", "append", "publish"];

#[tokio::test]
async fn a_first_time_operation_costs_two_commands_and_a_duplicate_one() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    // The server learns the scripts.
    run(&store, &plain("warm-up"), "done").await;
    let engine = Engine::new(store);
    for on_lapsed in [OnLapsed::Rerun, OnLapsed::Resume, OnLapsed::Hold] {
        let operation = operation(&format!("{on_lapsed:?}"), Duration::from_secs(30), on_lapsed);
        reset(&server);
        let ran = engine.run(&operation, async |_| Ok(Outcome::bytes("done"))).await.unwrap();
        assert!(matches!(ran, Ran::Executed(_)));
        let calls = called(&server);
        assert_eq!(calls.get("evalsha"), Some(&2), "{calls:?}");
        for name in calls.keys() {
            let in_scripts = ["time", "get", "set", "mset", "zadd", "evalsha"];
            assert!(in_scripts.contains(&name.as_str()), "{calls:?}");
        }

        reset(&server);
        let ran = engine.run(&operation, async |_| panic!("it ran before")).await.unwrap();
        assert!(matches!(ran, Ran::Replayed(_)));
        let calls = called(&server);
        let expected = [("evalsha", 1), ("get", 1), ("time", 1)];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(calls, BTreeMap::from(expected), "a duplicate reads, and writes nothing");
    }
}

#[tokio::test]
async fn duplicates_of_what_runs_or_is_unknown_write_nothing_either() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    let running = plain("running");
    claim(&store, &running).await;
    let unknown = operation("unknown", Duration::from_secs(30), OnLapsed::Hold);
    let fence = claim(&store, &unknown).await.fence;
    let abandon = Action::Abandon(fence, justonce_core::UnknownReason::Reported.into());
    store.apply(&Step::new(unknown.id(), abandon)).await.unwrap();
    reset(&server);
    for operation in [&running, &unknown] {
        begin(&store, operation).await.unwrap();
        let peek = Action::Peek(operation.fingerprint());
        store.apply(&Step::new(operation.id(), peek)).await.unwrap();
    }
    let calls = called(&server);
    assert!(!calls.keys().any(|name| WRITES.contains(&name.as_str())), "{calls:?}");
}

#[tokio::test]
async fn a_server_that_forgot_the_scripts_learns_them_again() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    for round in 0..3 {
        server.cli(&["SCRIPT", "FLUSH"]).unwrap();
        let operation = plain(&format!("round-{round}"));
        let fence = claim(&store, &operation).await.fence;
        server.cli(&["SCRIPT", "FLUSH"]).unwrap();
        let answer = complete(&store, &operation, fence, "done").await.unwrap();
        assert_eq!(answer, Answer::Applied);
        server.cli(&["SCRIPT", "FLUSH"]).unwrap();
        assert_eq!(replayed(&store, &operation).await, Some(Outcome::bytes("done")));
    }
}

#[tokio::test]
async fn a_server_that_may_evict_records_is_refused() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]).unwrap();
    let error = RedisStore::builder(server.url()).open().await.unwrap_err();
    assert!(is_not_applied(&error, StoreErrorKind::Stopped), "{error:?}");
    assert!(error.to_string().contains("allkeys-lru"), "{error}");
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    RedisStore::builder(server.url()).open().await.unwrap();
}

#[tokio::test]
async fn a_full_server_refuses_what_is_new_and_replays_what_is_there() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    let done = plain("done");
    run(&store, &done, "done").await;
    let running = plain("running");
    let fence = claim(&store, &running).await.fence;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let error = begin(&store, &plain("new")).await.unwrap_err();
    assert!(is_not_applied(&error, StoreErrorKind::Full), "{error:?}");
    let error = complete(&store, &running, fence, "done").await.unwrap_err();
    assert!(is_not_applied(&error, StoreErrorKind::Full), "{error:?}");
    assert!(is_not_applied(&store.ready().await.unwrap_err(), StoreErrorKind::Full));
    assert_eq!(replayed(&store, &done).await, Some(Outcome::bytes("done")));
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    store.ready().await.unwrap();
    assert_eq!(store.get(&plain("new").id()).await.unwrap(), None, "nothing half done");
    assert_eq!(complete(&store, &running, fence, "done").await.unwrap(), Answer::Applied);
}

#[tokio::test]
async fn stores_with_different_prefixes_know_nothing_of_each_other() {
    let server = RedisServer::start().unwrap();
    let one = RedisStore::builder(server.url()).prefix("one").open().await.unwrap();
    let two = RedisStore::builder(server.url()).prefix("two").open().await.unwrap();
    let operation = plain("the-same");
    run(&one, &operation, "one").await;
    run(&two, &operation, "two").await;
    assert_eq!(replayed(&one, &operation).await, Some(Outcome::bytes("one")));
    assert_eq!(two.stats().await.unwrap().completed.count, 1);
}
