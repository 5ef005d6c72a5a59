//! The four stores, each with a clock that the test sets.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::memory::MemoryStore;
use justonce_core::store::SharedStore;
use justonce_core::{Engine, ManualClock, Timestamp};
use justonce_embedded::EmbeddedStore;
use justonce_postgres::PostgresStore;
use justonce_redis::RedisStore;
use justonce_testbed::{PostgresOptions, PostgresServer, RedisServer};

/// A store, and what must live as long as it does.
pub(crate) struct Ground {
    pub(crate) store: SharedStore,
    pub(crate) clock: ManualClock,
    _keep: Box<dyn Any + Send + Sync>,
}

fn clock() -> ManualClock {
    ManualClock::starting_at(Timestamp::from_millis(1_750_000_000_000))
}

impl Ground {
    pub(crate) fn memory() -> Self {
        let clock = clock();
        Self { store: Arc::new(MemoryStore::new(clock.clone())), clock, _keep: Box::new(()) }
    }

    pub(crate) fn embedded() -> Self {
        let (clock, directory) = (clock(), tempfile::tempdir().unwrap());
        let store = EmbeddedStore::builder(directory.path()).clock(clock.clone()).open().unwrap();
        Self { store: Arc::new(store), clock, _keep: Box::new(directory) }
    }

    pub(crate) async fn redis() -> Self {
        let (clock, server) = (clock(), RedisServer::start().unwrap());
        let store = RedisStore::builder(server.url()).clock(clock.clone()).open().await.unwrap();
        Self { store: Arc::new(store), clock, _keep: Box::new(server) }
    }

    pub(crate) async fn postgres() -> Self {
        let (clock, server) = (clock(), PostgresServer::start(PostgresOptions::default()).unwrap());
        let store = PostgresStore::builder(server.url()).connections(4).clock(clock.clone());
        let store = store.open().await.unwrap();
        Self { store: Arc::new(store), clock, _keep: Box::new(server) }
    }

    pub(crate) fn engine(&self) -> Engine {
        let runtime = tokio::runtime::Handle::current();
        Engine::builder_shared(self.store.clone()).background(runtime).build()
    }

    /// Longer than every lease.
    pub(crate) fn much_later(&self) {
        self.clock.advance(Duration::from_secs(3600));
    }
}

/// One test for each store.
macro_rules! on_every_store {
    ($what:path: $memory:ident $embedded:ident $redis:ident $postgres:ident) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $memory() {
            $what($crate::ground::Ground::memory()).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn $embedded() {
            $what($crate::ground::Ground::embedded()).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn $redis() {
            $what($crate::ground::Ground::redis().await).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn $postgres() {
            $what($crate::ground::Ground::postgres().await).await;
        }
    };
}
pub(crate) use on_every_store;
