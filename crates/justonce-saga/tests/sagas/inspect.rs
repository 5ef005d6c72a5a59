//! Sagas as somebody sees them who does not have their program, and stuck ones made due again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use justonce_core::store::ListQuery;
use justonce_core::{Engine, Key, NoteKind, OnLapsed, Operation, Outcome, Policy, RecordId, Scope};
use justonce_saga::{
    Call, Completer, CompleterSettings, Phases, Retried, Saga, SagaState, SagaStep, SeenSaga,
    StepError, Tries, retry,
};

use crate::ground::{Ground, on_every_store};

const ONCE: Tries = Tries { most: 1, back_off: justonce_core::BackOff::DEFAULT };

/// Its only step cannot be undone, and fails until it is mended.
fn stubborn(mended: &Arc<AtomicBool>) -> Saga<u64> {
    let mended = Arc::clone(mended);
    let step = SagaStep::new("ship", move |_: Call<u64>| {
        let mended = mended.load(Ordering::SeqCst);
        let said = if mended { Ok(()) } else { Err(StepError::passing("no lorry")) };
        std::future::ready(said)
    });
    Saga::builder("order").step(SagaStep::from(step).tries(ONCE)).build().unwrap()
}

async fn run(saga: &Saga<u64>, engine: &Engine, key: &str) -> RecordId {
    let key = Key::client(key).unwrap();
    let operation = saga.operation(Scope::builder(), key, &17).unwrap();
    saga.run(engine, &operation).await.unwrap();
    operation.id()
}

async fn seen(engine: &Engine, id: RecordId) -> Option<SagaState> {
    let stored = engine.store().get(&id).await.unwrap()?;
    SeenSaga::of(&stored).map(|seen| seen.state)
}

async fn a_stuck_saga_is_due_again(ground: Ground) {
    let (engine, mended) = (ground.engine(), Arc::new(AtomicBool::new(false)));
    let saga = stubborn(&mended);
    let stuck = run(&saga, &engine, "order-1").await;
    assert_eq!(seen(&engine, stuck).await, Some(SagaState::Stuck));
    mended.store(true, Ordering::SeqCst);
    let done = run(&saga, &engine, "order-2").await;
    assert_eq!(seen(&engine, done).await, Some(SagaState::Done));
    assert_eq!(retry(&engine, done, "ann").await.unwrap(), Retried::NotStuck(SagaState::Done));
    // A completer that leaves stuck sagas to the operator.
    let settings = CompleterSettings {
        unchanged_for: Duration::ZERO,
        retry_stuck: None,
        ..CompleterSettings::default()
    };
    let completer = Completer::new(&engine, settings).with(saga.clone()).unwrap();
    let rounds = async || completer.round().await.ended + completer.round().await.ended;
    assert_eq!(rounds().await, 0);
    // Asking twice is no mistake: the second finds it due.
    assert_eq!(retry(&engine, stuck, "ann").await.unwrap(), Retried::Due);
    let again = retry(&engine, stuck, "bob").await.unwrap();
    assert_eq!(again, Retried::NotStuck(SagaState::Running));
    assert_eq!(rounds().await, 1);
    assert_eq!(seen(&engine, stuck).await, Some(SagaState::Done));
    let stored = engine.store().get(&stuck).await.unwrap().unwrap();
    let by_ann =
        |kind: &NoteKind| matches!(kind, NoteKind::Checkpointed(n) if **n == *"retried by ann");
    assert!(stored.timeline.notes().iter().any(|note| by_ann(&note.kind)));
}

on_every_store!(a_stuck_saga_is_due_again:
    retried_on_memory retried_on_embedded retried_on_redis retried_on_postgres);

#[tokio::test]
async fn what_somebody_drives_is_busy_and_other_things_are_no_sagas() {
    let ground = Ground::memory();
    let engine = ground.engine();
    let saga = stubborn(&Arc::default());
    let stuck = run(&saga, &engine, "order-1").await;
    let key = Key::client("order-1").unwrap();
    let operation = saga.operation(Scope::builder(), key, &17).unwrap();
    let driven = engine.begin(&operation).await.unwrap();
    assert_eq!(retry(&engine, stuck, "ann").await.unwrap(), Retried::Busy);
    drop(driven);
    let absent = RecordId::from_bytes([7; 32]);
    assert_eq!(retry(&engine, absent, "ann").await.unwrap(), Retried::None);
    // Phases, and an operation whose answer looks like that of a saga.
    let scope = || Scope::builder().operation("order").build().unwrap();
    let resume = Policy::builder().on_lapsed(OnLapsed::Resume).build().unwrap();
    let phases =
        Operation::without_fingerprint(scope(), Key::client("phases").unwrap()).with_policy(resume);
    let phases = Phases::new(["a"]).unwrap().asked(phases, &17).unwrap();
    drop(engine.begin(&phases).await.unwrap());
    let plain = Operation::without_fingerprint(scope(), Key::client("plain").unwrap());
    engine.run(&plain, async |_| Ok(Outcome::bytes("17"))).await.unwrap();
    for operation in [&phases, &plain] {
        assert_eq!(seen(&engine, operation.id()).await, None);
        assert_eq!(retry(&engine, operation.id(), "ann").await.unwrap(), Retried::None);
    }
    let all = engine.store().list(&ListQuery::default()).await.unwrap().records;
    assert_eq!(all.len(), 3, "nothing was made by looking");
}
