//! A server, a store, and steps in few words.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use justonce_core::store::Records;
use justonce_core::{
    Action, Answer, Fence, Key, OnLapsed, Operation, Outcome, Owner, Policy, Scope, Step, Token,
};
use justonce_postgres::PostgresStore;
use justonce_testbed::{PostgresOptions, PostgresServer};

/// How long something may take that must not wait for anybody.
pub(crate) const PROMPTLY: Duration = Duration::from_secs(10);

pub(crate) struct Stage {
    pub(crate) server: PostgresServer,
    pub(crate) store: PostgresStore,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(PostgresOptions::default()).await
    }

    pub(crate) async fn with(options: PostgresOptions) -> Self {
        let server = PostgresServer::start(options).unwrap();
        let store = open(&server).await;
        Self { server, store }
    }

    pub(crate) fn psql(&self, sql: &str) -> String {
        self.server.psql(sql).unwrap()
    }

    pub(crate) async fn claim(&self, operation: &Operation) -> Fence {
        claim(&self.store, operation).await
    }

    pub(crate) async fn complete(&self, operation: &Operation, fence: Fence) -> Answer {
        self.store.apply(&complete(operation, fence)).await.unwrap()
    }
}

pub(crate) async fn open(server: &PostgresServer) -> PostgresStore {
    PostgresStore::builder(server.url()).connections(2).open().await.unwrap()
}

pub(crate) fn begin(operation: &Operation) -> Step {
    static TOKENS: AtomicU64 = AtomicU64::new(1);
    let token = Token(TOKENS.fetch_add(1, Ordering::Relaxed).into());
    Step::begin(operation, Owner::new("test"), token)
}

pub(crate) fn complete(operation: &Operation, fence: Fence) -> Step {
    Step::new(operation.id(), Action::Complete(fence, Outcome::bytes("done")))
}

pub(crate) async fn claim(store: &PostgresStore, operation: &Operation) -> Fence {
    match store.apply(&begin(operation)).await.unwrap() {
        Answer::Claimed(claimed) => claimed.fence,
        other => panic!("no claim: {other:?}"),
    }
}

pub(crate) fn operation(name: &str, rule: OnLapsed, lease: Duration) -> Operation {
    let policy = Policy::builder().on_lapsed(rule).lease(lease).build().unwrap();
    Operation::without_fingerprint(Scope::global(), Key::client(name).unwrap())
        .with_policy(Arc::new(policy))
}

pub(crate) fn rerun(name: &str) -> Operation {
    operation(name, OnLapsed::Rerun, Duration::from_secs(30))
}

pub(crate) fn hold(name: &str) -> Operation {
    operation(name, OnLapsed::Hold, Duration::from_secs(30))
}
