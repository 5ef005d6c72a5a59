//! The PostgreSQL store against the rules, by the paths that production takes: on the server's
//! clock, in batches, and on a server that crashes and is started again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use justonce_postgres::PostgresStore;
use justonce_testbed::{PostgresOptions, PostgresServer};
use justonce_testkit::conformance::{
    OnManualClock, OnSystemClock, Survival, Verdict, restart, run,
};

/// A server that crashes whenever the store is opened again.
#[derive(Clone)]
struct Crashed {
    server: Arc<Mutex<PostgresServer>>,
    opened: Arc<AtomicBool>,
}

impl Crashed {
    fn start() -> Self {
        // What need not wait for the disk waits for so long that a crash loses it.
        let slow = ("wal_writer_delay".to_owned(), "10s".to_owned());
        let options = PostgresOptions { settings: vec![slow], ..PostgresOptions::default() };
        let server = PostgresServer::start(options).unwrap();
        server.psql("CREATE EXTENSION pg_stat_statements").unwrap();
        Self { server: Arc::new(Mutex::new(server)), opened: Arc::default() }
    }

    /// The address of the server, which has crashed if this is not the first time.
    fn url(&self) -> String {
        let mut server = self.server.lock().unwrap();
        if self.opened.swap(true, Ordering::SeqCst) {
            server.stop_immediate().unwrap();
            server.restart().unwrap();
        }
        server.url()
    }

    /// Only the statements of batches take lists apart.
    fn batches(&self) -> u64 {
        let calls = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements \
                     WHERE query LIKE '%unnest($2%' AND query NOT LIKE '%pg_stat_%'";
        self.server.lock().unwrap().psql(calls).unwrap().parse().unwrap()
    }
}

justonce_testkit::conformance_in_production!(postgres, async || {
    let crashed = Crashed::start();
    let counted = crashed.clone();
    let open = move || {
        let url = crashed.url();
        async move { PostgresStore::open(url).await }
    };
    let backend = OnSystemClock::open(Survival::Durable, open).await?;
    Ok(backend.counting(move || counted.batches()))
});

#[test]
fn every_record_is_there_after_the_server_crashed() -> Verdict {
    let open = || {
        let crashed = Crashed::start();
        OnManualClock::open(Survival::Durable, move |clock| {
            let url = crashed.url();
            async move { PostgresStore::builder(url).clock(clock).open().await }
        })
    };
    run(open, restart)
}
