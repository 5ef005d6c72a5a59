//! Phases that write to the store's own database: their writes and their checkpoints are
//! committed together, whatever dies in between.

use std::time::Duration;

use justonce_core::{Engine, HandlerError, Key, OnLapsed, Operation, Outcome, Policy, Ran, Scope};
use justonce_postgres::PostgresStore;
use justonce_postgres::tx::Tx;
use justonce_saga::{PhaseRun, Phases, Within};
use justonce_testbed::{PostgresOptions, PostgresServer};
use tokio::sync::Notify;

const TABLE: &str = "CREATE TABLE ledger (operation text NOT NULL, phase text NOT NULL)";
const TERMINATE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                         WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
/// Where an attempt ends.
const POINTS: [&str; 7] =
    ["reserve+", "reserve.", "charge+", "charge!", "charge.", "ship+", "none"];
/// How often a client asks.
const PATIENCE: usize = 30;

struct Stage {
    server: PostgresServer,
    store: PostgresStore,
    phases: Phases,
    reached: Notify,
}

fn operation(name: &str) -> Operation {
    let policy = Policy::builder().on_lapsed(OnLapsed::Resume).lease(Duration::from_millis(500));
    let scope = Scope::builder().operation("order").build().unwrap();
    Operation::without_fingerprint(scope, Key::client(name).unwrap())
        .with_policy(policy.build().unwrap())
}

impl Stage {
    async fn new() -> Self {
        let server = PostgresServer::start(PostgresOptions::default()).unwrap();
        server.psql(TABLE).unwrap();
        let store = PostgresStore::builder(server.url()).connections(4).transactions(4);
        let store = store.open().await.unwrap();
        let phases = Phases::new(["reserve", "charge", "ship"]).unwrap();
        Self { server, store, phases, reached: Notify::new() }
    }

    /// `name+`: the row is written, nothing is committed; `name.`: the phase is over; `name!`: the
    /// server cuts all connections before the commit.
    async fn at(&self, point: &str, stop: &str) {
        if stop == point && point.ends_with('!') {
            self.server.psql(TERMINATE).unwrap();
        } else if stop == point {
            self.reached.notify_one();
            std::future::pending::<()>().await;
        }
    }

    async fn phase(&self, run: &mut PhaseRun, name: &str, stop: &str) -> Result<(), HandlerError> {
        let phase = run.phase_within(name, async |phase: Within| {
            let written = self.store.checkpoint_with(phase.context(), async |tx: Tx| {
                let operation = phase.context().operation().key().as_str().to_owned();
                tx.execute("INSERT INTO ledger VALUES ($1, $2)", &[&operation, &name]).await?;
                self.at(&format!("{name}+"), stop).await;
                self.at(&format!("{name}!"), stop).await;
                Ok(((), phase.point(&())?))
            });
            written.await
        });
        phase.await?;
        self.at(&format!("{name}."), stop).await;
        Ok(())
    }

    /// One attempt that stops at a point; nothing if it stopped there.
    async fn attempt(&self, engine: &Engine, name: &str, stop: &str) -> Option<Ran> {
        let operation = operation(name);
        let ran = self.phases.run(engine, &operation, async |mut run| {
            self.phase(&mut run, "reserve", stop).await?;
            self.phase(&mut run, "charge", stop).await?;
            let context = run.context().clone();
            let key = name.to_owned();
            let outcome = self.store.outcome_with(context, async |tx: Tx, _| {
                let row = "INSERT INTO ledger VALUES ($1, 'ship')";
                tx.execute(row, &[&key]).await?;
                self.at("ship+", stop).await;
                Ok(Outcome::bytes("shipped"))
            });
            outcome.await
        });
        // What waits at the point is dropped there, as if its process had died.
        tokio::select! {
            ran = ran => ran.ok(),
            () = self.reached.notified() => None,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_dies_every_phase_takes_effect_once() {
    let stage = Stage::new().await;
    for stop in POINTS {
        let name = format!("order-{}", stop.len() + stop.bytes().map(usize::from).sum::<usize>());
        let _ = stage.attempt(&Engine::new(stage.store.clone()), &name, stop).await;
        let engine = Engine::new(stage.store.clone());
        let mut heard = Vec::new();
        while heard.last() != Some(&Outcome::bytes("shipped")) {
            assert!(heard.len() < PATIENCE, "{stop}: it never ended");
            let ran = stage.attempt(&engine, &name, "none").await;
            let outcome = ran.as_ref().and_then(Ran::outcome).cloned();
            heard.push(outcome.unwrap_or_else(Outcome::empty));
        }
        let rows = format!("SELECT phase FROM ledger WHERE operation = '{name}' ORDER BY 1");
        assert_eq!(stage.server.psql(&rows).unwrap(), "charge\nreserve\nship", "{stop}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_owner_commits_neither_its_writes_nor_its_point() {
    let stage = Stage::new().await;
    let engine = Engine::new(stage.store.clone());
    let operation = operation("slow");
    let ran = stage.phases.run(&engine, &operation, async |mut run| {
        let phase = run.phase_within("reserve", async |phase: Within| {
            let written = stage.store.checkpoint_with(phase.context(), async |tx: Tx| {
                tx.execute("INSERT INTO ledger VALUES ('slow', 'reserve')", &[]).await?;
                let sql = "UPDATE justonce.records SET fence = fence + 1";
                stage.server.psql(sql).unwrap();
                Ok(((), phase.point(&())?))
            });
            written.await
        });
        phase.await?;
        Ok(Outcome::bytes("never"))
    });
    let ran = ran.await.unwrap();
    assert!(ran.outcome().is_none(), "{ran:?}");
    assert_eq!(stage.server.psql("SELECT count(*) FROM ledger").unwrap(), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_point_in_a_transaction_of_the_callers_own() {
    let stage = Stage::new().await;
    let engine = Engine::new(stage.store.clone());
    let operation = operation("own");
    let url = stage.server.url();
    let ran = stage.phases.run(&engine, &operation, async |mut run| {
        let phase = run.phase_within("reserve", async |phase: Within| {
            let store = PostgresStore::builder(url.clone()).open().await?;
            let checkpointed = store.checkpoint_with(phase.context(), async |mut tx: Tx| {
                let (id, fence) = (phase.context().operation().id(), phase.context().fence());
                let first = phase.context().point("first", "1")?;
                let within = stage.store.checkpoint_within(&mut tx, &id, fence, &first);
                let stored = within.await.map_err(HandlerError::retryable)??;
                assert_eq!(stored, justonce_postgres::tx::Completion::Stored);
                Ok((7_u32, phase.point(&7_u32)?))
            });
            checkpointed.await
        });
        assert_eq!(phase.await?, 7);
        Err::<Outcome, _>(HandlerError::Unknown)
    });
    assert!(matches!(ran.await.unwrap(), Ran::Abandoned(_)));
    let again = stage.phases.run(&engine, &operation, async |mut run| {
        let saved: u32 = run.phase("reserve", async |_| panic!("it is done")).await?;
        Ok(Outcome::bytes(saved.to_string()))
    });
    assert_eq!(again.await.unwrap(), Ran::Executed(Outcome::bytes("7")));
}
