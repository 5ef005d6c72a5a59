//! Rows that are not as we write them: refused by the database, or reported as damaged.

use std::time::Duration;

use justonce_core::store::{ListQuery, Maintenance, Records};
use justonce_core::{
    Action, Answer, Checkpoint, Effect, Key, ManualClock, OnLapsed, Operation, Policy, RecordId,
    Scope, StateName, Step, StoreErrorKind, Timestamp,
};
use justonce_postgres::PostgresStore;
use justonce_testbed::{PostgresOptions, PostgresServer};

use crate::stage::{Stage, begin, claim, complete, hold, operation, rerun};

#[tokio::test]
async fn the_database_refuses_rows_that_cannot_be() {
    let stage = Stage::new().await;
    let done = rerun("done");
    let fence = stage.claim(&done).await;
    stage.complete(&done, fence).await;
    stage.claim(&rerun("running")).await;
    for (state, change) in [
        ("completed", "state = 'in_progress'"),
        ("completed", "state = 'lost'"),
        ("completed", "outcome = NULL"),
        ("completed", "expires_at = changed_at, due = changed_at"),
        ("completed", "due = NULL"),
        ("completed", "scope = NULL"),
        ("completed", "lease = 1"),
        ("completed", "reason = 'lapsed'"),
        ("completed", "retry_at = 1"),
        ("in_progress", "state = 'completed'"),
        ("in_progress", "state = 'unknown'"),
        ("in_progress", "lease_until = NULL"),
        ("in_progress", "lease = lease_cap + 1"),
        ("in_progress", "on_lapsed = 'shrug'"),
        ("in_progress", "on_lapsed = 'hold'"),
        ("in_progress", "on_failure = 'shrug'"),
        ("in_progress", "back_off_max = NULL"),
        ("in_progress", "owner = NULL"),
        ("in_progress", "token = NULL"),
        ("in_progress", "fence = 0"),
        ("in_progress", "attempt = 0"),
        ("in_progress", "point_name = 'a'"),
        ("in_progress", "notes = array_fill('a'::text, ARRAY[17])"),
        ("in_progress", "id = 'short'"),
    ] {
        let sql = format!("UPDATE justonce.records SET {change} WHERE state = '{state}'");
        let refused = stage.server.psql(&sql).expect_err(change).to_string();
        assert!(refused.contains("is_sound"), "{change}: {refused}");
    }
}

#[tokio::test]
async fn a_damaged_record_is_an_error_that_says_so() {
    let stage = Stage::new().await;
    for (number, damage) in [
        "outcome = 'x'",
        "outcome = set_byte(outcome, 12, get_byte(outcome, 12) # 1)",
        "notes = '{nonsense}'",
        "fingerprint = 'short'",
        "scope = 'no scope'",
        "key = ''",
    ]
    .into_iter()
    .enumerate()
    {
        let operation = rerun(&format!("damaged-{number}"));
        let fence = stage.claim(&operation).await;
        stage.complete(&operation, fence).await;
        let id = operation.id();
        stage.psql(&format!("UPDATE justonce.records SET {damage} WHERE id = '\\x{id}'"));
        let error = stage.store.get(&id).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Damaged, "{damage}: {error}");
        assert_eq!(error.effect(), Effect::NotApplied, "{damage}: {error}");
        if damage.starts_with("outcome") {
            let error = stage.store.apply(&begin(&operation)).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Damaged, "{damage}: {error}");
        }
        stage.psql(&format!("DELETE FROM justonce.records WHERE id = '\\x{id}'"));
    }
    stage.store.list(&ListQuery::default()).await.unwrap();
}

/// Damages records in a way that the database would refuse.
fn damage(stage: &Stage, ids: &[RecordId], change: &str) {
    let names: Vec<_> = ids.iter().map(|id| format!("'\\x{id}'::bytea")).collect();
    stage.psql(&format!(
        "ALTER TABLE justonce.records DROP CONSTRAINT is_sound;
         UPDATE justonce.records SET {change} WHERE id IN ({});
         ALTER TABLE justonce.records
             ADD CONSTRAINT is_sound CHECK (justonce.is_sound_1(records)) NOT VALID",
        names.join(", ")
    ));
}

#[tokio::test]
async fn damaged_records_stop_no_listing_and_are_listed_apart() {
    let stage = Stage::new().await;
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for number in 0..30 {
        let operation = hold(&format!("{number}"));
        let fence = stage.claim(&operation).await;
        stage.complete(&operation, fence).await;
        (if number % 5 == 0 { &mut bad } else { &mut good }).push(operation.id());
    }
    good.sort_unstable();
    bad.sort_unstable();
    for change in ["key = ''", "scope = 'no scope'", "fingerprint = 'short'", "state = 'lost'"] {
        damage(&stage, &bad, change);
        for state in [None, Some(StateName::Completed)] {
            let query = ListQuery { state, limit: 7, ..ListQuery::default() };
            let (listed, damaged) = listed(&stage.store, query).await;
            assert_eq!(listed, good, "{change}");
            // What has no state is asked for by nobody who asks for one.
            if state.is_none() || !change.starts_with("state") {
                assert_eq!(damaged, bad, "{change}");
            }
        }
        stage.store.stats().await.unwrap();
    }
    let health = stage.store.health().await.unwrap();
    assert_eq!((health.damaged.count, health.damaged.named), (bad.len() as u64, bad.clone()));
    // What can be read again, or is gone, is forgotten.
    stage.psql(&format!("DELETE FROM justonce.records WHERE id = '\\x{}'", bad[0]));
    assert_eq!(stage.store.get(&bad[0]).await.unwrap(), None);
    assert_eq!(stage.store.health().await.unwrap().damaged.named, bad[1..]);
}

async fn listed(store: &PostgresStore, mut query: ListQuery) -> (Vec<RecordId>, Vec<RecordId>) {
    let (mut listed, mut damaged) = (Vec::new(), Vec::new());
    loop {
        let page = store.list(&query).await.unwrap();
        listed.extend(page.records.into_iter().map(|record| record.id));
        damaged.extend(page.damaged);
        query.after = page.next;
        if query.after.is_none() {
            return (listed, damaged);
        }
    }
}

/// More of them than one statement takes, and all due before the others.
#[tokio::test]
async fn damaged_records_stop_no_sweep_and_are_counted() {
    const DAMAGED: usize = 230;
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let clock = ManualClock::starting_at(Timestamp::from_millis(1_750_000_000_000));
    let store = PostgresStore::builder(server.url()).clock(clock.clone()).open().await.unwrap();
    let day = Duration::from_secs(24 * 3600);
    let policy = Policy::builder()
        .on_lapsed(OnLapsed::Hold)
        .after_retention(justonce_core::AfterRetention::Refuse(day))
        .build()
        .unwrap();
    let mut ids = Vec::new();
    for number in 0..DAMAGED + 50 {
        let operation = Operation::without_fingerprint(
            Scope::global(),
            Key::client(format!("{number}")).unwrap(),
        )
        .with_policy(policy);
        let fence = claim(&store, &operation).await;
        store.apply(&complete(&operation, fence)).await.unwrap();
        clock.advance(Duration::from_millis(1));
        ids.push(operation.id());
    }
    let stage = Stage { server, store };
    damage(&stage, &ids[..DAMAGED], "fence = -1");
    clock.advance(day);
    for round in 0..2 {
        let report = stage.store.sweep(usize::MAX).await.unwrap();
        assert_eq!(report.buried, if round == 0 { 50 } else { 0 }, "{report:?}");
        assert_eq!(report.damaged, DAMAGED as u64, "{report:?}");
        assert!(!report.more, "{report:?}");
    }
    let damaged = stage.store.health().await.unwrap().damaged;
    assert_eq!(damaged.count, DAMAGED as u64);
    assert!(damaged.named.iter().all(|id| ids[..DAMAGED].contains(id)));
}

/// *Not applied* is said only where nothing was.
#[tokio::test]
async fn a_takeover_that_finds_a_damaged_checkpoint_is_not_called_not_applied() {
    let stage = Stage::new().await;
    let operation = operation("resumed", OnLapsed::Resume, Duration::from_secs(30));
    let fence = stage.claim(&operation).await;
    let point = Checkpoint::new("half", b"way".to_vec()).unwrap().numbered(1);
    let save = Step::new(operation.id(), Action::Checkpoint(fence, point));
    assert_eq!(stage.store.apply(&save).await.unwrap(), Answer::Applied);
    let id = operation.id();
    // No name of a checkpoint: it is no text. And the lease lapses.
    stage.psql(&format!(
        "UPDATE justonce.records SET point_name = '\\xff', lease_until = claimed_at + 1, \
         due = NULL WHERE id = '\\x{id}'"
    ));
    let row = format!("SELECT fence, attempt FROM justonce.records WHERE id = '\\x{id}'");
    let before = stage.psql(&row);
    let error = stage.store.apply(&begin(&operation)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Damaged, "{error}");
    if error.effect() == Effect::NotApplied {
        assert_eq!(stage.psql(&row), before, "it was applied all the same: {error}");
    }
}
