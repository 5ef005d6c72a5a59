//! TLS: every connection has it where the address says so, and none goes to a stranger.

use std::path::Path;
use std::sync::Arc;

use justonce_core::store::Records;
use justonce_core::{Engine, Outcome, StoreErrorKind};
use justonce_postgres::{PostgresStore, migrate};
use justonce_testbed::{Authority, PostgresOptions, PostgresServer};
use tokio::time::timeout;

use crate::stage::{PROMPTLY, claim, complete, rerun};

/// How many connections of ours there are, and how many of them have TLS.
const OURS: &str = "SELECT count(*), count(*) FILTER (WHERE ssl) \
                    FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                    WHERE application_name = 'justonce'";

/// A server of these names, and the authority that vouches for it.
fn server(names: &[&str]) -> (PostgresServer, Authority) {
    let authority = Authority::new().unwrap();
    let tls = Some(authority.certificate(names).unwrap());
    let options = PostgresOptions { tls, ..PostgresOptions::default() };
    (PostgresServer::start(options).unwrap(), authority)
}

fn address(server: &PostgresServer, mode: &str, roots: &Path) -> String {
    format!("{}?sslmode={mode}&sslrootcert={}", server.url(), roots.display())
}

/// Why a store is not opened.
async fn refused(url: String) -> String {
    let error = PostgresStore::builder(url).open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_waiters_and_transactions_all_have_it() {
    let (server, authority) = server(&["127.0.0.1"]);
    server.psql("CREATE TABLE ledger (entry text)").unwrap();
    let url = address(&server, "verify-full", &authority.file());
    let store = PostgresStore::builder(url.clone()).connections(2).open().await.unwrap();
    let other = Arc::new(PostgresStore::builder(url).connections(2).open().await.unwrap());

    // A waiter in another store hears of the end.
    let operation = rerun("a");
    let fence = claim(&store, &operation).await;
    let (waits, id) = (Arc::clone(&other), operation.id());
    let waiting = tokio::spawn(async move { waits.settled(&id, fence).await });
    let announced = format!("SELECT waited FROM justonce.records WHERE id = '\\x{id}'");
    while server.psql(&announced).unwrap() != "t" {
        tokio::task::yield_now().await;
    }
    store.apply(&complete(&operation, fence)).await.unwrap();
    timeout(PROMPTLY, waiting).await.expect("nobody woke the waiter").unwrap().unwrap();

    // A caller's transaction, and while it is open all kinds of connections are there.
    let engine = Engine::new(store.clone());
    let asked = || server.psql(OURS).unwrap();
    let ran = store
        .transactional(&engine, &rerun("b"), async |tx, _| {
            tx.execute("INSERT INTO ledger VALUES ('b')", &[]).await?;
            Ok(Outcome::bytes(asked()))
        })
        .await
        .unwrap();
    assert_eq!(server.psql("SELECT entry FROM ledger").unwrap(), "b");
    let counts = String::from_utf8(ran.outcome().unwrap().body().unwrap().to_vec()).unwrap();
    let (all, with_tls) = counts.split_once('|').unwrap();
    assert_eq!(all, with_tls, "{counts}");
    // Steps of both, the listener, the transaction.
    assert!(all.parse::<u32>().unwrap() >= 4, "{counts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_insist_check_as_much_also_in_pairs() {
    let (server, authority) = server(&["localhost"]);
    let (port, roots) = (server.port(), authority.file());
    let pairs = |host: &str, mode: &str| {
        let roots = roots.display();
        format!(
            "host={host} hostaddr=127.0.0.1 port={port} user=postgres dbname=postgres \
             sslmode={mode} sslrootcert='{roots}'"
        )
    };
    for mode in ["require", "verify-ca", "verify-full"] {
        migrate::apply(&pairs("localhost", mode), "justonce").await.unwrap();
        let error = refused(pairs("db.internal", mode)).await;
        assert!(error.contains("name the server as its certificate does"), "{mode}: {error}");
    }
    // By an address that the certificate does not name.
    let error = refused(address(&server, "verify-full", &roots)).await;
    assert!(error.contains("name the server as its certificate does"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_by_a_stranger_is_refused() {
    let (server, _) = server(&["127.0.0.1"]);
    let stranger = Authority::new().unwrap();
    let url = address(&server, "require", &stranger.file());
    for error in [
        refused(url.clone()).await,
        migrate::pending(&url, "justonce").await.unwrap_err().to_string(),
    ] {
        assert!(error.contains("sslrootcert=FILE"), "{error}");
        assert!(error.contains("UnknownIssuer"), "{error}");
    }
    assert_eq!(
        server.psql("SELECT count(*) FROM pg_namespace WHERE nspname = 'justonce'").unwrap(),
        "0"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_wants_tls_is_not_spoken_to_without() {
    let (server, _authority) = server(&["127.0.0.1"]);
    for url in [server.url(), format!("{}?sslmode=disable", server.url())] {
        let error = refused(url).await;
        assert!(error.contains("sslmode=verify-full"), "it says what to do: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_not_spoken_to_where_it_is_wanted() {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let authority = Authority::new().unwrap();
    for mode in ["require", "verify-full"] {
        let error = refused(address(&server, mode, &authority.file())).await;
        assert!(error.contains("server does not support TLS"), "{error}");
    }
    assert_eq!(
        server.psql("SELECT count(*) FROM pg_namespace WHERE nspname = 'justonce'").unwrap(),
        "0"
    );
}
