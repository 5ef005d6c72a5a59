//! Whatever happens around the COMMIT, the client learns what became of it.

use justonce_core::Ran;
use justonce_testbed::PostgresOptions;

use super::bank::{Bank, receipt, store_at, until_done};
use super::proxy::{Proxy, Stop, Stopped};

const TERMINATE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                         WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";

async fn with_proxy(bank: &Bank, stop: Stop) -> (justonce_postgres::PostgresStore, Stopped) {
    let proxy = Proxy::before(bank.server.port()).await;
    let store = store_at(&proxy.url()).await;
    let stopped = proxy.stop_next(stop);
    (store, stopped)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_of_the_commit_is_found_out() {
    let bank = Bank::open();
    let (store, stopped) = with_proxy(&bank, Stop::BeforeClient).await;
    let (ran, ()) = tokio::join!(until_done(&store, "a"), stopped.meanwhile(|| ()));
    assert_eq!(ran, Ran::Executed(receipt("a")), "it was committed by this very call");
    bank.ensure(&["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_never_arrived_is_found_out() {
    let bank = Bank::open();
    let (store, stopped) = with_proxy(&bank, Stop::BeforeServer).await;
    let (ran, ()) = tokio::join!(until_done(&store, "a"), stopped.meanwhile(|| ()));
    assert_eq!(ran, Ran::Executed(receipt("a")), "after the first try was rolled back");
    bank.ensure(&["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_terminated_at_the_commit() {
    for stop in [Stop::BeforeServer, Stop::BeforeClient] {
        let bank = Bank::open();
        let (store, stopped) = with_proxy(&bank, stop).await;
        let terminate = stopped.meanwhile(|| bank.server.psql(TERMINATE).unwrap());
        let (ran, _) = tokio::join!(until_done(&store, "a"), terminate);
        assert!(matches!(ran, Ran::Executed(_)), "{stop:?}: {ran:?}");
        bank.ensure(&["a"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_crashes_at_the_commit() {
    for stop in [Stop::BeforeServer, Stop::BeforeClient] {
        let options = PostgresOptions { fsync: true, ..PostgresOptions::default() };
        let mut bank = Bank::on(options);
        let (store, stopped) = with_proxy(&bank, stop).await;
        let server = &mut bank.server;
        let crash = stopped.meanwhile(|| {
            server.stop_immediate().unwrap();
            server.restart().unwrap();
        });
        let (ran, ()) = tokio::join!(until_done(&store, "a"), crash);
        assert!(ran.outcome().is_some(), "{stop:?}: {ran:?}");
        bank.ensure(&["a"]);
    }
}
