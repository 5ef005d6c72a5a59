//! Steps that many callers take at once share statements, and nothing else.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::Records;
use justonce_core::{
    Action, Answer, BusyWhy, Effect, Existing, Fence, Lost, OnLapsed, Operation, Outcome, Step,
    StoreResult,
};
use justonce_postgres::PostgresStore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::stage::{PROMPTLY, Stage, begin, complete, hold, open, operation, rerun};

const CALLS: &str = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements \
                     WHERE query NOT LIKE '%pg_stat_%'";

/// Takes all these steps at once; the answers in their order.
pub(crate) async fn at_once(
    steps: impl IntoIterator<Item = (Arc<PostgresStore>, Step)>,
) -> Vec<StoreResult<Answer>> {
    let take = |(store, step): (Arc<PostgresStore>, Step)| -> JoinHandle<_> {
        tokio::spawn(async move { store.apply(&step).await })
    };
    let tasks: Vec<_> = steps.into_iter().map(take).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_is_claimed_once_and_every_caller_gets_its_own_answer() {
    const KEYS: usize = 40;
    let stage = Stage::new().await;
    stage.psql("CREATE EXTENSION pg_stat_statements");
    let stores = [Arc::new(stage.store.clone()), Arc::new(open(&stage.server).await)];
    // Nothing is shared before each connection has made sure that no fences were forgotten.
    let first = (0..20).map(|at| (Arc::clone(&stores[at % 2]), begin(&rerun(&format!("w-{at}")))));
    at_once(first.collect::<Vec<_>>()).await;
    let mut steps = 0_u32;
    stage.psql("SELECT pg_stat_statements_reset()");
    for round in 0..6 {
        let named = if round % 2 == 0 { hold } else { rerun };
        let operations: Vec<_> = (0..KEYS).map(|key| named(&format!("{round}-{key}"))).collect();
        // Each key three times in either process.
        let asked: Vec<_> = (0..6 * KEYS).map(|at| (at % 2, (at / 2) % KEYS)).collect();
        let begins = asked
            .iter()
            .map(|(store, key)| (Arc::clone(&stores[*store]), begin(&operations[*key])));
        let mut fences: HashMap<usize, Fence> = HashMap::new();
        let mut busy: Vec<(usize, Fence)> = Vec::new();
        for (answer, (_, key)) in at_once(begins).await.into_iter().zip(&asked) {
            match answer.unwrap() {
                Answer::Claimed(claimed) => {
                    assert_eq!(fences.insert(*key, claimed.fence), None, "{key} twice");
                }
                Answer::Existing(Existing::Busy(other)) if other.why == BusyWhy::Running => {
                    busy.push((*key, other.fence));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(fences.len(), KEYS);
        for (key, fence) in busy {
            assert_eq!(fences[&key], fence, "{key} was answered for another");
        }
        let completions = fences.iter().map(|(key, fence)| {
            (Arc::clone(&stores[key % 2]), complete(&operations[*key], *fence))
        });
        for answer in at_once(completions).await {
            assert_eq!(answer.unwrap(), Answer::Applied);
        }
        steps += u32::try_from(7 * KEYS).unwrap();
    }
    let calls: u32 = stage.psql(CALLS).parse().unwrap();
    assert!(calls < steps / 2, "{calls} statements for {steps} steps");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_that_comes_too_late_is_told_so_among_others_that_do_not() {
    let stage = Stage::new().await;
    let store = Arc::new(stage.store.clone());
    let outcome = |name: &str| Outcome::bytes(name.as_bytes().to_vec());
    let completes = |operation: &Operation, fence, name: &str| {
        (Arc::clone(&store), Step::new(operation.id(), Action::Complete(fence, outcome(name))))
    };
    let (mut steps, mut expected) = (Vec::new(), Vec::new());
    for number in 0..20 {
        let name = format!("own-{number}");
        let operation = hold(&name);
        let fence = stage.claim(&operation).await;
        steps.push(completes(&operation, fence, &name));
        expected.push(Answer::Applied);
        let operation = hold(&format!("stale-{number}"));
        let fence = stage.claim(&operation).await;
        steps.push(completes(&operation, Fence::new(fence.get() - 1), "stale"));
        expected.push(Answer::Lost(Lost::Superseded));
        steps.push(completes(&hold(&format!("gone-{number}")), fence, "gone"));
        expected.push(Answer::Lost(Lost::Gone));
        let operation = hold(&format!("done-{number}"));
        let fence = stage.claim(&operation).await;
        stage.complete(&operation, fence).await;
        steps.push(completes(&operation, fence, "done"));
        expected.push(Answer::Applied);
    }
    let answers: Vec<_> = at_once(steps).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, expected);
    for number in 0..20 {
        let name = format!("own-{number}");
        let answer = store.apply(&begin(&hold(&name))).await.unwrap();
        assert_eq!(answer.completed(), Some(&outcome(&name)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_the_server_refuses_spoils_no_other() {
    let stage = Stage::new().await;
    let store = Arc::new(stage.store.clone());
    stage.psql(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN IF NEW.key LIKE 'bad%' THEN RAISE 'no'; END IF; RETURN NEW; END $$;
         CREATE TRIGGER no BEFORE INSERT ON justonce.records FOR EACH ROW EXECUTE FUNCTION no()",
    );
    let names: Vec<_> =
        (0..60).map(|at| format!("{}-{at}", if at % 20 == 7 { "bad" } else { "good" })).collect();
    let steps = names.iter().map(|name| (Arc::clone(&store), begin(&hold(name))));
    for (answer, name) in at_once(steps).await.into_iter().zip(&names) {
        match answer {
            Ok(Answer::Claimed(_)) => assert!(name.starts_with("good"), "{name}"),
            Err(error) => {
                assert!(name.starts_with("bad"), "{name}: {error}");
                assert_eq!(error.effect(), Effect::NotApplied, "{error}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// A begin of a lapsed claim needs the record's lock. Whoever holds that stops this begin only.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_record_stops_nobody_else() {
    let stage = Stage::new().await;
    let store = Arc::new(stage.store.clone());
    let lapsed = operation("lapsed", OnLapsed::Hold, Duration::from_millis(10));
    stage.claim(&lapsed).await;
    let over = "SELECT count(*) FROM justonce.records WHERE due <= justonce.millis_1()";
    while stage.psql(over) == "0" {
        tokio::task::yield_now().await;
    }
    let (client, connection) =
        tokio_postgres::connect(&stage.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; SELECT * FROM justonce.records FOR UPDATE").await.unwrap();
    let (stopped, step) = (Arc::clone(&store), begin(&lapsed));
    let stopped = tokio::spawn(async move { stopped.apply(&step).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    while stage.psql(waits) == "0" {
        tokio::task::yield_now().await;
    }
    let others = (0..8).map(|at| (Arc::clone(&store), begin(&hold(&format!("other-{at}")))));
    for answer in timeout(PROMPTLY, at_once(others)).await.unwrap() {
        assert!(matches!(answer.unwrap(), Answer::Claimed(_)));
    }
    assert!(!stopped.is_finished(), "the lock was not waited for");
    client.batch_execute("ROLLBACK").await.unwrap();
    let answer = stopped.await.unwrap().unwrap();
    assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
}

/// Whoever goes away while its step waits or is on its way takes nobody along.
#[tokio::test(flavor = "multi_thread")]
async fn callers_that_go_away_take_nobody_along() {
    let stage = Stage::new().await;
    let store = Arc::new(stage.store.clone());
    for round in 0..20 {
        let leaving: Vec<_> = (0..20)
            .map(|at| {
                let (store, step) = (Arc::clone(&store), begin(&hold(&format!("{round}-x{at}"))));
                tokio::spawn(async move { store.apply(&step).await })
            })
            .collect();
        let staying =
            (0..20).map(|at| (Arc::clone(&store), begin(&hold(&format!("{round}-{at}")))));
        let staying = tokio::spawn(at_once(staying.collect::<Vec<_>>()));
        tokio::task::yield_now().await;
        leaving.iter().for_each(JoinHandle::abort);
        for answer in timeout(PROMPTLY, staying).await.unwrap().unwrap() {
            assert!(matches!(answer.unwrap(), Answer::Claimed(_)));
        }
    }
}
