//! Rows that are not as we write them: refused by the database, or reported as damaged.

use justonce_core::store::{ListQuery, Maintenance, Records};
use justonce_core::{Effect, StoreErrorKind};

use crate::stage::{Stage, begin, rerun};

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
