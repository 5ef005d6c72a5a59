//! A bank: two accounts, and a ledger with a row for each transfer.

use std::time::Duration;

use justonce_core::engine::Context;
use justonce_core::{Engine, HandlerError, Key, OnLapsed, Operation, Outcome, Policy, Ran, Scope};
use justonce_postgres::PostgresStore;
use justonce_postgres::tx::Tx;
use justonce_testbed::{PostgresOptions, PostgresServer};

/// How often a client asks before it gives up.
const PATIENCE: usize = 20;

pub(crate) const TABLES: &str = "
    CREATE TABLE accounts (name text PRIMARY KEY, cents bigint NOT NULL);
    INSERT INTO accounts VALUES ('ada', 1000), ('bob', 1000);
    CREATE TABLE ledger (transfer text NOT NULL, fence bigint NOT NULL);
    CREATE TABLE payees (name text PRIMARY KEY DEFERRABLE INITIALLY DEFERRED);
    INSERT INTO payees VALUES ('bob')";

pub(crate) struct Bank {
    pub(crate) server: PostgresServer,
}

impl Bank {
    pub(crate) fn open() -> Self {
        Self::on(PostgresOptions::default())
    }

    pub(crate) fn on(options: PostgresOptions) -> Self {
        let server = PostgresServer::start(options).unwrap();
        server.psql(TABLES).unwrap();
        Self { server }
    }

    pub(crate) async fn store(&self) -> PostgresStore {
        store_at(&self.server.url()).await
    }

    /// Checks that just these transfers took place, once each.
    pub(crate) fn ensure<T: AsRef<str>>(&self, transfers: &[T]) {
        let ledger = self.server.psql("SELECT transfer FROM ledger ORDER BY 1").unwrap();
        let mut expected: Vec<&str> = transfers.iter().map(AsRef::as_ref).collect();
        expected.sort_unstable();
        assert_eq!(ledger.lines().collect::<Vec<_>>(), expected, "the ledger");
        let moved = 5 * transfers.len();
        let cents = self.server.psql("SELECT cents FROM accounts ORDER BY name").unwrap();
        assert_eq!(cents, format!("{}\n{}", 1000 - moved, 1000 + moved), "the accounts");
        let completed = "SELECT count(*) FROM justonce.records WHERE state = 'completed'";
        let completed = self.server.psql(completed).unwrap();
        assert_eq!(completed, transfers.len().to_string(), "the completed records");
    }
}

pub(crate) async fn store_at(url: &str) -> PostgresStore {
    PostgresStore::builder(url).connections(4).transactions(4).open().await.unwrap()
}

/// A transfer whose lease outlasts the test, so that nothing but the test decides.
pub(crate) fn operation(name: &str) -> Operation {
    leased(name, Duration::from_secs(60))
}

/// A transfer whose claim lapses soon once its owner was killed.
pub(crate) fn short_lived(name: &str) -> Operation {
    leased(name, Duration::from_millis(400))
}

/// The same under any rule for lapsed claims.
pub(crate) fn short_lived_under(rule: OnLapsed, name: &str) -> Operation {
    let policy = short_lived(name).policy().with_on_lapsed(rule);
    short_lived(name).with_policy(policy)
}

fn leased(name: &str, lease: Duration) -> Operation {
    let scope = Scope::builder().operation("transfer").build().unwrap();
    let policy = Policy::builder().on_lapsed(OnLapsed::Rerun).lease(lease).build().unwrap();
    Operation::without_fingerprint(scope, Key::client(name).unwrap()).with_policy(policy)
}

/// Moves five cents.
pub(crate) async fn transfer(tx: &Tx, context: &Context) -> Result<Outcome, HandlerError> {
    let name = context.operation().key().as_str();
    let fence = justonce_postgres::tx::fence_of(context.fence());
    tx.execute("UPDATE accounts SET cents = cents - 5 WHERE name = 'ada'", &[]).await?;
    tx.execute("INSERT INTO ledger VALUES ($1, $2)", &[&name, &fence]).await?;
    tx.execute("UPDATE accounts SET cents = cents + 5 WHERE name = 'bob'", &[]).await?;
    Ok(receipt(name))
}

pub(crate) fn receipt(name: &str) -> Outcome {
    Outcome::bytes(format!("moved 5 for {name}"))
}

/// A client asks until it has its receipt.
pub(crate) async fn until_done(store: &PostgresStore, name: &str) -> Ran {
    until_receipt(store, &operation(name)).await
}

/// The same for any transfer.
pub(crate) async fn until_receipt(store: &PostgresStore, operation: &Operation) -> Ran {
    let name = operation.key().as_str();
    let engine = Engine::new(store.clone());
    let mut heard = Vec::new();
    for _ in 0..PATIENCE {
        let handler = async |tx: Tx, context: Context| transfer(&tx, &context).await;
        match store.transactional(&engine, operation, handler).await {
            Ok(ran) if ran.outcome() == Some(&receipt(name)) => return ran,
            other => heard.push(other),
        }
    }
    panic!("no receipt for {name}: {heard:?}");
}
