//! TLS: every connection has it where the address says so, and none goes to a stranger.

use std::sync::Arc;

use justonce_core::store::{OutcomeCache, Records};
use justonce_core::{Outcome, StoreErrorKind};
use justonce_redis::{RedisOutcomes, RedisStore};
use justonce_testbed::{Authority, RedisCluster, RedisSentinel, RedisServer};
use tokio::time::timeout;

use crate::world::{LOST_AFTER, claim, complete, plain, replayed, run};

/// A server of these names, and the authority that vouches for it.
fn server(names: &[&str]) -> (RedisServer, Authority) {
    let authority = Authority::new().unwrap();
    let certificate = authority.certificate(names).unwrap();
    (RedisServer::start_tls(&certificate, &[]).unwrap(), authority)
}

async fn open(url: String, authority: &Authority) -> RedisStore {
    RedisStore::builder(url).ca_file(authority.file()).open().await.unwrap()
}

/// One store claims and completes, another waits and replays.
async fn works(url: String, authority: &Authority) {
    let owner = open(url.clone(), authority).await;
    let other = Arc::new(open(url, authority).await);
    let operation = plain("a");
    let fence = claim(&owner, &operation).await.fence;
    let (waits, id) = (Arc::clone(&other), operation.id());
    let waiting = tokio::spawn(async move { waits.settled(&id, fence).await });
    // Whether it waits already or comes too late: it hears of the end.
    complete(&owner, &operation, fence, "done").await.unwrap();
    timeout(LOST_AFTER, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(replayed(&other, &operation).await, Some(Outcome::bytes("done")));
    for key in 0..20 {
        run(&owner, &plain(&format!("key-{key}")), "done").await;
    }
}

/// Why a store is not opened.
async fn refused(url: String, authority: Option<&Authority>) -> String {
    let builder = RedisStore::builder(url);
    let builder = match authority {
        Some(authority) => builder.ca_file(authority.file()),
        None => builder,
    };
    let error = builder.open().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    error.to_string()
}

#[tokio::test]
async fn steps_and_waiters_have_it() {
    let (server, authority) = server(&["127.0.0.1"]);
    let store = open(server.url(), &authority).await;
    let operation = plain("waited-for");
    let fence = claim(&store, &operation).await.fence;
    let store = Arc::new(store);
    let (waits, id) = (Arc::clone(&store), operation.id());
    let waiting = tokio::spawn(async move { waits.settled(&id, fence).await });
    // The one who waits hears it by the subscription: nobody else publishes.
    let marked = || server.cli(&["INFO", "commandstats"]).unwrap().contains("cmdstat_getrange");
    while !marked() {
        tokio::task::yield_now().await;
    }
    complete(&store, &operation, fence, "done").await.unwrap();
    timeout(LOST_AFTER, waiting).await.unwrap().unwrap().unwrap();
    assert!(server.cli(&["INFO", "commandstats"]).unwrap().contains("cmdstat_publish"));
    works(server.url(), &authority).await;
}

#[tokio::test]
async fn the_cache_of_outcomes_has_it_too() {
    let (server, authority) = server(&["127.0.0.1"]);
    let outcomes = RedisOutcomes::builder(server.url()).ca_file(authority.file()).build().unwrap();
    outcomes.forget(&plain("a").id()).await.unwrap();
    assert_eq!(server.cli(&["DBSIZE"]).unwrap(), "1");
}

#[tokio::test]
async fn what_sentinels_name_is_reached_with_it() {
    let authority = Authority::new().unwrap();
    let certificate = authority.certificate(&["127.0.0.1"]).unwrap();
    let group = RedisSentinel::start_tls(&certificate, 1, 1).unwrap();
    works(group.url(), &authority).await;
    let stranger = Authority::new().unwrap();
    let error = refused(group.url(), Some(&stranger)).await;
    assert!(error.contains("the sentinel at") && error.contains("UnknownIssuer"), "{error}");
}

#[tokio::test]
async fn the_nodes_of_a_cluster_are_reached_with_it() {
    let authority = Authority::new().unwrap();
    let certificate = authority.certificate(&["127.0.0.1"]).unwrap();
    let cluster = RedisCluster::start_tls(&certificate, 3, 0).unwrap();
    works(cluster.url(), &authority).await;
    let error = refused(cluster.url(), None).await;
    assert!(error.contains("`ca_file`"), "{error}");
}

#[tokio::test]
async fn a_certificate_by_a_stranger_is_refused() {
    let (server, _authority) = server(&["127.0.0.1"]);
    let stranger = Authority::new().unwrap();
    // Neither the machine nor another authority knows it.
    for trusted in [None, Some(&stranger)] {
        let error = refused(server.url(), trusted).await;
        assert!(error.contains("UnknownIssuer") && error.contains("`redis.ca`"), "{error}");
    }
}

#[tokio::test]
async fn a_certificate_of_another_name_is_refused() {
    let (server, authority) = server(&["redis.internal"]);
    let error = refused(server.url(), Some(&authority)).await;
    assert!(error.contains("by a name that its certificate has"), "{error}");
}

#[tokio::test]
async fn a_server_that_wants_tls_is_not_spoken_to_without() {
    let (server, authority) = server(&["127.0.0.1"]);
    let plain = format!("redis://{}", server.place());
    let error = refused(plain.clone(), None).await;
    assert!(error.contains("write rediss"), "it says what to do: {error}");
    let builder = RedisStore::builder(plain).ca_file(authority.file());
    let error = builder.open().await.map(drop).unwrap_err().to_string();
    assert!(error.contains("write rediss"), "it says what to do: {error}");
}

#[tokio::test]
async fn a_server_without_tls_is_not_spoken_to_where_it_is_wanted() {
    let server = RedisServer::start().unwrap();
    let authority = Authority::new().unwrap();
    let error = refused(format!("rediss://{}", server.place()), Some(&authority)).await;
    assert!(error.contains("cannot reach"), "{error}");
    assert_eq!(server.cli(&["DBSIZE"]).unwrap(), "0");
}

#[tokio::test]
async fn authorities_that_cannot_be_read_are_named() {
    for file in ["no/such/file.pem", "Cargo.toml"] {
        let builder = RedisStore::builder("rediss://u:secret@127.0.0.1:1").ca_file(file);
        let error = builder.open().await.map(drop).unwrap_err().to_string();
        assert!(error.contains(file) && !error.contains("secret"), "{error}");
    }
}
