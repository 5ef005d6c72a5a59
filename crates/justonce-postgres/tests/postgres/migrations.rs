//! The schema is made once, by whoever comes first, and never by a program that is too old.

use justonce_core::store::Maintenance;
use justonce_core::{Effect, StoreErrorKind};
use justonce_postgres::{PostgresStore, migrate};
use justonce_testbed::{PostgresOptions, PostgresServer};

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_and_again_later() {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let url = server.url();
            tokio::spawn(async move { migrate::apply(&url, "justonce").await.unwrap().len() })
        })
        .collect();
    let mut applied = Vec::new();
    for task in tasks {
        applied.push(task.await.unwrap());
    }
    let steps: usize =
        server.psql("SELECT count(*) FROM justonce.migrations").unwrap().parse().unwrap();
    applied.sort_unstable();
    assert_eq!(applied, [0, 0, 0, 0, 0, 0, 0, steps], "one did it all");
    assert!(migrate::apply(&server.url(), "justonce").await.unwrap().is_empty());
    assert!(migrate::pending(&server.url(), "justonce").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_dry_run_prints_and_changes_nothing() {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let pending = migrate::pending(&server.url(), "other_name").await.unwrap();
    let script = migrate::script(&pending);
    assert!(script.contains("CREATE TABLE \"other_name\".records"), "{script}");
    assert!(!script.contains("@schema@") && !script.contains("@channel@"), "{script}");
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'other_name'";
    assert_eq!(server.psql(schemas).unwrap(), "0");
    // What is printed is what is done.
    server.psql(&format!("CREATE SCHEMA other_name; {script}")).unwrap();
    assert_eq!(server.psql("SELECT count(*) FROM other_name.records").unwrap(), "0");
}

#[tokio::test]
async fn schemas_that_cannot_be_used_are_refused_in_words() {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let unmigrated = PostgresStore::builder(server.url()).migrate(false).open().await.unwrap_err();
    assert!(unmigrated.to_string().contains("justonce migrate"), "{unmigrated}");
    let store = PostgresStore::open(server.url()).await.unwrap();
    store.ready().await.unwrap();
    server.psql("INSERT INTO justonce.migrations VALUES (9999, 'from the future')").unwrap();
    for allowed in [true, false] {
        let newer = PostgresStore::builder(server.url()).migrate(allowed).open().await.unwrap_err();
        assert!(newer.to_string().contains("newer than this program"), "{newer}");
        assert_eq!(newer.kind(), StoreErrorKind::Protocol);
    }
    // A program that runs already goes on: later steps only add.
    store.ready().await.unwrap();
    let strange = PostgresStore::builder(server.url()).schema("a\"b").open().await.unwrap_err();
    assert!(strange.to_string().contains("name of a schema"), "{strange}");
    server.psql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0").unwrap();
    let latin = PostgresStore::open(server.url_of("latin")).await.unwrap_err();
    assert!(latin.to_string().contains("UTF8"), "{latin}");
    let nobody = PostgresStore::open("postgres://postgres@127.0.0.1:1/postgres").await.unwrap_err();
    assert_eq!(nobody.kind(), StoreErrorKind::Unavailable);
    assert_eq!(nobody.effect(), Effect::NotApplied);
}

#[tokio::test]
async fn two_schemas_in_one_database_know_nothing_of_each_other() {
    use crate::stage::{claim, rerun};
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    for schema in ["here", "there"] {
        let store = PostgresStore::builder(server.url()).schema(schema).open().await.unwrap();
        claim(&store, &rerun("same")).await;
    }
}

/// What docs/operating.md grants is enough, also to jump after a crash.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_not_change_the_schema_can_do_all_the_rest() {
    use crate::stage::{claim, complete, rerun};
    use justonce_core::store::Records;
    use justonce_core::{Engine, Outcome, Ran};
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    migrate::apply(&server.url(), "justonce").await.unwrap();
    server
        .psql(
            "CREATE ROLE gateway LOGIN;
             GRANT USAGE ON SCHEMA justonce TO gateway;
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA justonce TO gateway;
             GRANT SELECT, UPDATE, USAGE ON ALL SEQUENCES IN SCHEMA justonce TO gateway;
             DELETE FROM justonce.no_crash_since",
        )
        .unwrap();
    let url = server.url().replace("postgres@", "gateway@");
    let store = PostgresStore::builder(url).migrate(false).open().await.unwrap();
    let operation = rerun("a");
    let fence = claim(&store, &operation).await;
    assert!(fence.get() > u64::from(u32::MAX), "{fence}: it did not jump");
    store.apply(&complete(&operation, fence)).await.unwrap();
    store.sweep(10).await.unwrap();
    store.stats().await.unwrap();
    let engine = Engine::new(store.clone());
    let nothing = async |_, _| Ok(Outcome::empty());
    let ran = store.transactional(&engine, &rerun("b"), nothing).await.unwrap();
    assert_eq!(ran, Ran::Executed(Outcome::empty()));
}

/// The release before went by `begin_1` and `complete_1`.
#[tokio::test]
async fn what_the_release_before_has_begun_is_completed_and_its_programs_go_on() {
    use crate::stage::{begin, complete, hold};
    use justonce_core::store::Records;
    use justonce_core::{Answer, Fence};
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let steps = migrate::pending(&server.url(), "justonce").await.unwrap();
    let (before, after) = steps.split_at(7);
    assert!(!after.is_empty());
    server.psql(&migrate::script(before)).unwrap();
    let begun = |key: &str| {
        let (id, scope) = (hold(key).id(), hold(key).scope().as_str().to_owned());
        let begin = format!(
            "SELECT o_answer || ' ' || o_fence FROM justonce.begin_1(NULL, '\\x{id}', \
             '\\x01{id}', true, '{scope}', '{key}', 'old', 'old', '\\x{}', NULL, \
             30000, 900000, 'hold', 'replay', NULL, NULL, NULL, 86400000, NULL)",
            "07".repeat(16)
        );
        let answer = server.psql(&begin).unwrap();
        let fence = answer.strip_prefix("claimed ").unwrap().parse().unwrap();
        (id, Fence::new(fence))
    };
    let (_, fence) = begun("a");
    let store = PostgresStore::open(server.url()).await.unwrap();
    assert!(migrate::pending(&server.url(), "justonce").await.unwrap().is_empty());
    let operation = hold("a");
    assert_eq!(store.apply(&complete(&operation, fence)).await.unwrap(), Answer::Applied);
    assert!(store.get(&operation.id()).await.unwrap().is_some());
    let (id, newer) = begun("b");
    assert!(newer > fence);
    let busy = store.apply(&begin(&hold("b"))).await.unwrap();
    assert!(matches!(busy, Answer::Existing(_)), "{busy:?}");
    let completes = format!("SELECT justonce.complete_1(NULL, '\\x{id}', {newer}, '\\x00')");
    assert_eq!(server.psql(&completes).unwrap(), "applied");
}
