//! Waiting for a running operation: woken by the server, never by looking again and again.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::Records;
use justonce_core::{Action, Answer, Engine, Fence, OnConcurrent, Operation, Outcome, Ran, Step};
use justonce_redis::RedisStore;
use justonce_testbed::RedisServer;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::world::{LOST_AFTER, claim, complete, plain};

/// How long it is watched that nobody asks: forty times what a tight loop would wait.
const WATCHED: Duration = Duration::from_millis(400);

/// How long between two looks at the server's figures.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// Starts to wait, and returns once the server knows.
async fn waiting(
    store: &Arc<RedisStore>,
    server: &RedisServer,
    operation: &Operation,
    fence: Fence,
) -> JoinHandle<()> {
    let before = watched(server);
    let (own, id) = (Arc::clone(store), operation.id());
    let waiter = tokio::spawn(async move { drop(own.settled(&id, fence).await.unwrap()) });
    let registered = async {
        while watched(server) == before {
            sleep(LOOK_AGAIN_AFTER).await; // tidy: allow-sleep: a server's figures give no signal
        }
    };
    timeout(LOST_AFTER, registered).await.unwrap();
    waiter
}

/// How often somebody said that they wait: no other script reads a part of a record.
fn watched(server: &RedisServer) -> u64 {
    let text = server.cli(&["INFO", "commandstats"]).unwrap();
    let mut rows = text.lines().filter_map(|line| line.strip_prefix("cmdstat_getrange:calls="));
    rows.next().map_or(0, |row| row.split(',').next().unwrap().parse().unwrap())
}

fn processed(server: &RedisServer) -> u64 {
    server.info("stats", "total_commands_processed").unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_server_wakes_those_who_wait_in_another_process() {
    let server = RedisServer::start().unwrap();
    // The commands of checks would be counted too.
    let open = || RedisStore::builder(server.url()).check_every(LOST_AFTER * 100).open();
    let (owner, other) = (open().await.unwrap(), Arc::new(open().await.unwrap()));
    let operation = plain("waited-for");
    let fence = claim(&owner, &operation).await.fence;
    let waiter = waiting(&other, &server, &operation, fence).await;

    let before = processed(&server);
    sleep(WATCHED).await; // tidy: allow-sleep: that nothing happens takes time to see
    assert_eq!(processed(&server) - before, 1, "only this test asks while somebody waits");
    assert!(!waiter.is_finished());

    complete(&owner, &operation, fence, "done").await.unwrap();
    timeout(LOST_AFTER, waiter).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_claim_for_which_nobody_waits_publishes_nothing() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    let operation = plain("alone");
    let fence = claim(&store, &operation).await.fence;
    complete(&store, &operation, fence, "done").await.unwrap();
    let stats = server.cli(&["INFO", "commandstats"]).unwrap();
    assert!(!stats.contains("cmdstat_publish"), "{stats}");
}

#[tokio::test]
async fn losing_the_subscription_wakes_everybody_and_it_comes_back() {
    let server = RedisServer::start().unwrap();
    let store = Arc::new(RedisStore::builder(server.url()).open().await.unwrap());
    let operation = plain("waited-for");
    let fence = claim(&store, &operation).await.fence;
    let waiter = waiting(&store, &server, &operation, fence).await;
    assert_eq!(server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap(), "1");
    timeout(LOST_AFTER, waiter).await.unwrap().unwrap();

    let waiter = waiting(&store, &server, &operation, fence).await;
    let release = Step::new(operation.id(), Action::Release(fence));
    assert_eq!(store.apply(&release).await.unwrap(), Answer::Applied);
    timeout(LOST_AFTER, waiter).await.unwrap().unwrap();
}

#[tokio::test]
async fn duplicates_in_two_processes_get_the_outcome_when_it_is_there() {
    let server = RedisServer::start().unwrap();
    let open = || RedisStore::builder(server.url()).open();
    let engines = [Engine::new(open().await.unwrap()), Engine::new(open().await.unwrap())];
    let wait = OnConcurrent::Wait(LOST_AFTER);
    let operation = plain("waited-for").on_concurrent(wait);
    let (run, running) = tokio::sync::oneshot::channel::<()>();
    let first = {
        let (engine, operation) = (engines[0].clone(), operation.clone());
        let (started, starts) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let handler = |_| async move {
                started.send(()).unwrap();
                running.await.unwrap();
                Ok(Outcome::bytes("done"))
            };
            engine.run(&operation, handler).await.unwrap()
        });
        starts.await.unwrap();
        task
    };
    let duplicates: Vec<_> = engines
        .iter()
        .cycle()
        .take(20)
        .map(|engine| {
            let (engine, operation) = (engine.clone(), operation.clone());
            tokio::spawn(async move {
                engine.run(&operation, async |_| panic!("it runs already")).await.unwrap()
            })
        })
        .collect();
    run.send(()).unwrap();
    assert_eq!(first.await.unwrap(), Ran::Executed(Outcome::bytes("done")));
    for duplicate in duplicates {
        let ran = timeout(LOST_AFTER, duplicate).await.unwrap().unwrap();
        assert_eq!(ran, Ran::Replayed(Outcome::bytes("done")));
    }
}
