//! The Redis store against the rules, by the paths that production takes: on the server's clock, in
//! batches, and on a server that is killed and started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use justonce_core::StoreResult;
use justonce_redis::RedisStore;
use justonce_testbed::{RedisCluster, RedisServer};
use justonce_testkit::conformance::{
    Backend, OnManualClock, OnSystemClock, Survival, Verdict, at_once, lapses, restart, run,
};

use crate::commands::called;

/// A server that has on disk what it acknowledges, and is killed whenever the store is opened
/// again.
#[derive(Clone)]
struct Killed {
    server: Arc<RedisServer>,
    opened: Arc<AtomicBool>,
}

impl Killed {
    fn start() -> Self {
        let durable = ["--appendonly", "yes", "--appendfsync", "always"];
        let server = Arc::new(RedisServer::start_with(&durable).unwrap());
        Self { server, opened: Arc::default() }
    }

    /// The address of the server, which was killed if this is not the first time.
    fn url(&self) -> String {
        if self.opened.swap(true, Ordering::SeqCst) {
            self.server.kill();
            self.server.restart().unwrap();
        }
        self.server.url()
    }
}

/// Only batches read several records by one command.
fn batches(server: &RedisServer) -> u64 {
    called(server).get("mget").copied().unwrap_or_default()
}

justonce_testkit::conformance_in_production!(redis, async || {
    let killed = Killed::start();
    let server = Arc::clone(&killed.server);
    let open = move || {
        let url = killed.url();
        async move { RedisStore::builder(url).open().await }
    };
    let backend = OnSystemClock::open(Survival::Durable, open).await?;
    Ok(backend.counting(move || batches(&server)))
});

#[test]
fn every_record_is_there_after_the_server_was_killed() -> Verdict {
    let open = || {
        let killed = Killed::start();
        OnManualClock::open(Survival::Durable, move |clock| {
            let url = killed.url();
            async move { RedisStore::builder(url).clock(clock).open().await }
        })
    };
    run(open, restart)
}

/// A cluster has no batches, but the clocks of its servers.
async fn on_cluster() -> StoreResult<impl Backend> {
    let cluster = Arc::new(RedisCluster::start(3, 0).unwrap());
    OnSystemClock::open(Survival::Durable, move || {
        let cluster = Arc::clone(&cluster);
        async move { RedisStore::builder(cluster.url()).open().await }
    })
    .await
}

#[test]
fn cases_on_a_cluster_match_the_rules() -> Verdict {
    run(on_cluster, at_once)
}

#[test]
fn leases_lapse_on_a_cluster() -> Verdict {
    run(on_cluster, lapses)
}
