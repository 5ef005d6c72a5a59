//! A server that takes few connections.

use std::sync::Arc;

use justonce_core::store::{Maintenance, Records};
use justonce_core::{Answer, StoreErrorKind};
use justonce_postgres::PostgresStore;
use justonce_testkit::servers::{PostgresOptions, PostgresServer};
use tokio::time::timeout;

use crate::stage::{PROMPTLY, begin, rerun};

/// A server with so many connections, none of them reserved.
fn narrow(connections: u32) -> PostgresServer {
    let settings = [("superuser_reserved_connections", "0"), ("max_wal_senders", "0")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    PostgresServer::start(PostgresOptions { max_connections: connections, settings, fsync: false })
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn those_that_there_are_suffice_where_the_server_takes_no_more() {
    let server = narrow(3);
    let store = PostgresStore::builder(server.url()).connections(16).open().await.unwrap();
    let store = Arc::new(store);
    let tasks: Vec<_> = (0..200)
        .map(|at| {
            let (store, step) = (Arc::clone(&store), begin(&rerun(&format!("{at}"))));
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
    let mut others = Vec::new();
    while others.len() < 2 {
        // The connection that brought the schema may take a moment to go.
        if let Ok((client, connection)) =
            tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await
        {
            tokio::spawn(connection);
            others.push(client);
        }
    }
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
