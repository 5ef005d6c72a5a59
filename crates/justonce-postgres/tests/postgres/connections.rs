//! A server that takes few connections.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::{Maintenance, Records};
use justonce_core::{Answer, Checkpoint, StoreErrorKind};
use justonce_postgres::PostgresStore;
use justonce_testbed::{PostgresOptions, PostgresServer};
use tokio::time::timeout;

use crate::stage::{PROMPTLY, Stage, begin, hold, rerun};

/// Longer than any step waits for another.
const PATIENCE: Duration = Duration::from_millis(200);

/// A server with so many connections, none of them reserved.
fn narrow(connections: u32) -> PostgresServer {
    let settings = [("superuser_reserved_connections", "0"), ("max_wal_senders", "0")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let options = PostgresOptions { max_connections: connections, settings, ..Default::default() };
    PostgresServer::start(options).unwrap()
}

/// Takes as many connections to a server, as soon as it has them.
async fn taken(server: &PostgresServer, count: usize) -> Vec<tokio_postgres::Client> {
    let mut taken = Vec::new();
    while taken.len() < count {
        // The connection that brought the schema may take a moment to go.
        if let Ok((client, connection)) =
            tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await
        {
            tokio::spawn(connection);
            taken.push(client);
        }
    }
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn those_that_there_are_suffice_where_the_server_takes_no_more() {
    let server = narrow(3);
    let store = PostgresStore::builder(server.url()).connections(16).open().await.unwrap();
    let store = Arc::new(store);
    let tasks: Vec<_> = (0..200)
        .map(|at| {
            // With a checkpoint each goes alone.
            let point = Checkpoint::new("asked", "what").unwrap();
            let operation = rerun(&format!("{at}")).starting_from(point);
            let (store, step) = (Arc::clone(&store), begin(&operation));
            tokio::spawn(async move { store.apply(&step).await })
        })
        .collect();
    for task in tasks {
        let answer = timeout(PROMPTLY, task).await.unwrap().unwrap();
        assert!(matches!(answer, Ok(Answer::Claimed(_))), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_none_is_said_to_at_once_and_found_again() {
    let server = narrow(2);
    let store = PostgresStore::builder(server.url()).connections(16).open().await.unwrap();
    let others = taken(&server, 2).await;
    let started = tokio::time::Instant::now();
    let error = store.apply(&begin(&rerun("a"))).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("53300"), "{error}");
    assert!(started.elapsed().as_secs() < 4, "there was nothing to wait for");
    drop(others);
    let found = async {
        while store.ready().await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PROMPTLY, found).await.unwrap();
}

/// Whoever else asks at that moment has no connection either: nobody waits for another.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_none_says_so_to_many_at_once() {
    let server = narrow(2);
    let store = PostgresStore::builder(server.url()).connections(16).open().await.unwrap();
    let others = taken(&server, 2).await;
    let started = tokio::time::Instant::now();
    let tasks: Vec<_> = (0..40)
        .map(|at| {
            // With a checkpoint each goes alone.
            let point = Checkpoint::new("asked", "what").unwrap();
            let (store, step) =
                (store.clone(), begin(&rerun(&format!("{at}")).starting_from(point)));
            tokio::spawn(async move { store.apply(&step).await })
        })
        .collect();
    for task in tasks {
        let error = task.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("53300"), "{error}");
    }
    assert!(started.elapsed().as_secs() < 4, "there was nothing to wait for");
    drop(others);
    let step = begin(&rerun("a"));
    let found = async { while store.apply(&step).await.is_err() {} };
    timeout(PROMPTLY, found).await.unwrap();
}

/// Nobody knows of a claim that is taken for a caller who has gone, and given back it already was.
#[tokio::test(flavor = "multi_thread")]
async fn what_waited_for_a_connection_is_not_sent_once_its_caller_has_gone() {
    let stage = Stage::new().await;
    let store = PostgresStore::builder(stage.server.url()).connections(1).open().await.unwrap();
    let (client, connection) =
        tokio_postgres::connect(&stage.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; LOCK TABLE justonce.records IN EXCLUSIVE MODE").await.unwrap();
    let ask = |name: &str| {
        let (store, step) = (store.clone(), begin(&hold(name)));
        tokio::spawn(async move { store.apply(&step).await })
    };
    let first = ask("first");
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    while stage.psql(waits) == "0" {}
    let gone = [ask("gone"), ask("gone-too")];
    // Long enough for each to be about to be sent.
    tokio::time::sleep(PATIENCE).await; // tidy: allow-sleep: nobody can see who waits in a client
    gone.iter().for_each(tokio::task::JoinHandle::abort);
    for gone in gone {
        assert!(gone.await.unwrap_err().is_cancelled());
    }
    client.batch_execute("COMMIT").await.unwrap();
    for asked in [first, ask("last")] {
        let answer = timeout(PROMPTLY, asked).await.unwrap().unwrap();
        assert!(matches!(answer, Ok(Answer::Claimed(_))), "{answer:?}");
    }
    for gone in ["gone", "gone-too"] {
        assert_eq!(store.get(&hold(gone).id()).await.unwrap(), None, "{gone}");
    }
}

/// Another process may have none.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_nobody_needs_are_given_up() {
    let stage = Stage::new().await;
    let store = PostgresStore::builder(stage.server.url()).connections(8).open().await.unwrap();
    let (client, connection) =
        tokio_postgres::connect(&stage.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; LOCK TABLE justonce.records IN EXCLUSIVE MODE").await.unwrap();
    // With a checkpoint each goes alone, and all wait for the lock.
    let tasks = (0..8).map(|at| {
        let point = Checkpoint::new("asked", "what").unwrap();
        let step = begin(&hold(&format!("{at}")).starting_from(point));
        let store = store.clone();
        tokio::spawn(async move { store.apply(&step).await })
    });
    let tasks: Vec<_> = tasks.collect();
    let ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'justonce'";
    let count = || stage.psql(ours).parse::<u32>().unwrap();
    while count() < 8 {}
    client.batch_execute("COMMIT").await.unwrap();
    for task in tasks {
        assert!(matches!(task.await.unwrap(), Ok(Answer::Claimed(_))));
    }
    let given_up = async {
        while count() > 2 {
            store.ready().await.unwrap();
        }
    };
    timeout(2 * PROMPTLY, given_up).await.unwrap();
    assert!(count() > 0, "the one that is needed stays");
}

/// Something that accepts connections and says nothing: a balancer without a server behind it.
#[tokio::test]
async fn a_server_that_says_nothing_is_not_waited_for() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://a@{}/a", silent.local_addr().unwrap());
    let opened = timeout(2 * PROMPTLY, PostgresStore::open(url));
    opened.await.expect("it waits for ever").expect_err("nobody answers");
}
