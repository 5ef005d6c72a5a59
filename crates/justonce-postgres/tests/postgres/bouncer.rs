//! Behind PgBouncer: by sessions the store works, by transactions it says why it does not.

use std::process::Command;

use justonce_core::store::{Maintenance, Records};
use justonce_core::{Answer, Effect, Engine, Outcome, Ran, StoreErrorKind};
use justonce_postgres::{PostgresStore, migrate};
use justonce_testbed::{PgBouncer, PoolMode, PostgresOptions, PostgresServer};
use tokio::time::timeout;

use crate::stage::{PROMPTLY, Stage, begin, hold, rerun};

fn server() -> PostgresServer {
    PostgresServer::start(PostgresOptions::default()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn by_sessions_everything_works() {
    let server = server();
    let bouncer = PgBouncer::start(&server, PoolMode::Session, &[]).unwrap();
    let store = PostgresStore::open(bouncer.url()).await.unwrap();
    store.ready().await.unwrap();
    let engine = Engine::new(store.clone());
    let (started, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let (end, ends) = tokio::sync::watch::channel(false);
    let run = |engine: Engine| {
        let (started, mut ends) = (started.clone(), ends.clone());
        tokio::spawn(async move {
            let handler = async |_| {
                started.send(()).unwrap();
                ends.wait_for(|over| *over).await.unwrap();
                Ok(Outcome::bytes("done"))
            };
            engine.run(&hold("a"), handler).await.unwrap()
        })
    };
    let runs: Vec<_> = (0..8).map(|_| run(engine.clone())).collect();
    hears.recv().await.unwrap();
    let waited = "SELECT count(*) FROM justonce.records WHERE waited";
    while server.psql(waited).unwrap() == "0" {}
    end.send(true).unwrap();
    let mut executed = 0;
    for run in runs {
        let ran = timeout(PROMPTLY, run).await.expect("nobody woke a waiter").unwrap();
        executed += u32::from(matches!(ran, Ran::Executed(_)));
        assert_eq!(ran.outcome(), Some(&Outcome::bytes("done")));
    }
    assert_eq!(executed, 1);
    let handler = async |tx: justonce_postgres::tx::Tx, _| {
        tx.execute("SELECT 1", &[]).await.map_err(|_| justonce_core::HandlerError::NotExecuted)?;
        Ok(Outcome::bytes("moved"))
    };
    let ran = store.transactional(&engine, &rerun("tx"), handler).await.unwrap();
    assert_eq!(ran, Ran::Executed(Outcome::bytes("moved")));
}

#[tokio::test(flavor = "multi_thread")]
async fn by_transactions_it_is_refused_with_the_reason() {
    let server = server();
    migrate::apply(&server.url(), "justonce").await.unwrap();
    for settings in [&[][..], &[("server_round_robin", "1")], &[("default_pool_size", "1")]] {
        let bouncer = PgBouncer::start(&server, PoolMode::Transaction, settings).unwrap();
        // With none and with some idle connections to the server.
        for idle in [0, 1, 2, 3] {
            let others = occupy(&bouncer, idle, settings).await;
            drop(others);
            for migrates in [true, false] {
                let builder = PostgresStore::builder(bouncer.url()).migrate(migrates);
                let opened = timeout(PROMPTLY, builder.open()).await.unwrap();
                let error = opened.expect_err(&format!("{settings:?}, {idle} idle"));
                assert_eq!(error.kind(), StoreErrorKind::Protocol, "{error}");
                for word in ["PgBouncer", "pool_mode = session"] {
                    assert!(error.to_string().contains(word), "{error}");
                }
            }
            let told = migrate::pending(&bouncer.url(), "justonce").await.unwrap_err();
            assert!(told.to_string().contains("pool_mode = session"), "{told}");
        }
    }
}

/// Transactions of others at once, so that there are as many connections to the server.
async fn occupy(
    bouncer: &PgBouncer,
    count: usize,
    settings: &[(&str, &str)],
) -> Vec<tokio_postgres::Client> {
    let at_most = if settings.iter().any(|(name, _)| *name == "default_pool_size") { 1 } else { 9 };
    let mut clients = Vec::new();
    for _ in 0..count.min(at_most) {
        let (client, connection) =
            tokio_postgres::connect(&bouncer.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("BEGIN; SELECT 1").await.unwrap();
        clients.push(client);
    }
    for client in &clients {
        client.batch_execute("COMMIT").await.unwrap();
    }
    clients
}

/// Others come and go through the same PgBouncer while a store is opened.
#[tokio::test(flavor = "multi_thread")]
async fn by_transactions_it_is_refused_also_while_others_are_at_work() {
    let server = server();
    let bouncer = PgBouncer::start(&server, PoolMode::Transaction, &[]).unwrap();
    let others: Vec<_> = occupy(&bouncer, 6, &[]).await;
    let others: Vec<_> = others
        .into_iter()
        .map(|client| {
            tokio::spawn(async move {
                loop {
                    client.batch_execute("BEGIN; SELECT pg_sleep(0.001); COMMIT").await.unwrap();
                }
            })
        })
        .collect();
    for _ in 0..20 {
        let opened = timeout(PROMPTLY, PostgresStore::open(bouncer.url())).await.unwrap();
        let error = opened.expect_err("it was not noticed");
        assert!(error.to_string().contains("pool_mode = session"), "{error}");
    }
    others.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A commit that waits for a standby has happened. Its backend is killed before it can say so, and
/// what the client hears then is PgBouncer's word, which knows nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_pgbouncer_says_may_have_been_applied() {
    let stage = Stage::new().await;
    let bouncer = PgBouncer::start(&stage.server, PoolMode::Session, &[]).unwrap();
    let store = PostgresStore::open(bouncer.url()).await.unwrap();
    let answer = store.apply(&begin(&hold("first"))).await.unwrap();
    assert!(matches!(answer, Answer::Claimed(_)));
    stage.psql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    stage.psql("SELECT pg_reload_conf()");
    while stage.psql("SHOW synchronous_standby_names") != "nobody" {}
    let operation = hold("killed");
    let step = begin(&operation);
    let asked = tokio::spawn(async move { store.apply(&step).await });
    let waits = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let mut process = String::new();
    while process.is_empty() {
        process = stage.psql(waits);
    }
    assert!(Command::new("kill").args(["-9", &process]).status().unwrap().success());
    let error = timeout(PROMPTLY, asked).await.unwrap().unwrap().unwrap_err();
    let id = operation.id();
    let committed = format!("SELECT count(*) FROM justonce.records WHERE id = '\\x{id}'");
    let found = loop {
        // The server needs a moment to come back.
        if let Ok(found) = stage.server.psql(&committed) {
            break found;
        }
    };
    assert_eq!(found, "1", "it was committed");
    assert_eq!(error.effect(), Effect::MayHaveBeenApplied, "{error}");
}

/// What the server itself refuses was not applied, also behind PgBouncer.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_refuses_was_not_applied() {
    let stage = Stage::new().await;
    let bouncer = PgBouncer::start(&stage.server, PoolMode::Session, &[]).unwrap();
    let store = PostgresStore::open(bouncer.url()).await.unwrap();
    store.apply(&begin(&hold("first"))).await.unwrap();
    stage.psql(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
         CREATE TRIGGER no BEFORE INSERT ON justonce.records FOR EACH ROW EXECUTE FUNCTION no()",
    );
    let error = store.apply(&begin(&hold("refused"))).await.unwrap_err();
    assert_eq!(error.effect(), Effect::NotApplied, "{error}");
}
