//! What hangs, what can never be saved and what is stuck: none of it stops, repeats itself for ever,
//! or delays what is fresh.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use justonce_core::store::ListQuery;
use justonce_core::{BackOff, Key, Scope, StateName};
use justonce_saga::{Call, Completer, CompleterSettings, Saga, SagaStep, StepError, Tries};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::ground::Ground;

/// When something that must happen counts as lost. It detects failures and paces nothing.
const LOST_AFTER: Duration = Duration::from_secs(20);
const ONCE: Tries = Tries { most: 1, back_off: BackOff::DEFAULT };
const STUCK: usize = 3000;
const FRESH: usize = 20;
/// How many rounds may pass until the fresh ones are found, whichever place a node starts at.
const ROUNDS: usize = 6;

/// A look at everything, again and again.
fn eager() -> CompleterSettings {
    CompleterSettings {
        every: Duration::from_millis(20),
        unchanged_for: Duration::ZERO,
        ..CompleterSettings::default()
    }
}

/// Begun by somebody who died before the first step.
async fn left(ground: &Ground, saga: &Saga<u64>, key: &str) {
    let key = Key::client(key).unwrap();
    let operation = saga.operation(Scope::builder(), key, &17).unwrap();
    drop(ground.engine().begin(&operation).await.unwrap());
}

/// Counts its runs.
fn counting(name: &str, runs: &Arc<Semaphore>) -> Saga<u64> {
    let runs = Arc::clone(runs);
    let run = move |_: Call<u64>| {
        runs.add_permits(1);
        std::future::ready(Ok::<(), StepError>(()))
    };
    Saga::builder(name).step(SagaStep::new("run", run)).build().unwrap()
}

#[tokio::test]
async fn one_hanging_step_keeps_no_other_saga_waiting() {
    let ground = Ground::memory();
    let (hangs, runs) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let entered = Arc::clone(&hangs);
    let hanging = Saga::builder("hanging")
        .step(SagaStep::new("hang", move |_: Call<u64>| {
            entered.add_permits(1);
            std::future::pending::<Result<(), StepError>>()
        }))
        .build()
        .unwrap();
    let healthy = counting("healthy", &runs);
    left(&ground, &hanging, "hanging").await;
    ground.much_later();
    let completer = Completer::new(&ground.engine(), eager());
    let completer = completer.with(hanging).unwrap().with(healthy.clone()).unwrap();
    let _completing = completer.start(|_| {});
    timeout(LOST_AFTER, hangs.acquire()).await.expect("it was not even begun").unwrap().forget();
    for number in 0..50 {
        left(&ground, &healthy, &format!("healthy-{number}")).await;
    }
    ground.much_later();
    let all = timeout(LOST_AFTER, runs.acquire_many(50)).await;
    assert!(all.is_ok(), "{} of 50 healthy sagas were driven", runs.available_permits());
}

#[tokio::test]
async fn a_result_that_cannot_be_saved_does_not_run_its_step_again_and_again() {
    let ground = Ground::memory();
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let large = SagaStep::new("load", move |_: Call<String>| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok::<_, StepError>("x".repeat(300 * 1024)))
    });
    let saga = Saga::builder("order")
        .step(large.saves(|context: &mut String, loaded| *context = loaded))
        .step(SagaStep::new("use", async |_: Call<String>| Ok(())))
        .build()
        .unwrap();
    let key = Key::client("order-17").unwrap();
    let operation = saga.operation(Scope::builder(), key, &String::new()).unwrap();
    let said = saga.run(&ground.engine(), &operation).await.unwrap_err().to_string();
    assert!(said.contains("load") && said.contains("at most 253952"), "{said}");
    let completer = Completer::new(&ground.engine(), eager()).with(saga.clone()).unwrap();
    for _ in 0..20 {
        ground.much_later();
        completer.round().await;
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1, "its step ran again");
    let query = ListQuery { state: Some(StateName::InProgress), ..ListQuery::default() };
    let left = ground.store.list(&query).await.unwrap().records;
    assert_eq!(left.len(), 1, "it is still there for somebody to see");
}

/// The context of a saga that gets stuck; every other one counts its runs.
const STUBBORN: u64 = 17;

fn order(runs: &Arc<Semaphore>) -> Saga<u64> {
    let runs = Arc::clone(runs);
    let run = SagaStep::new("run", move |call: Call<u64>| {
        let is_stubborn = *call.context() == STUBBORN;
        runs.add_permits(usize::from(!is_stubborn));
        let said = if is_stubborn { Err(StepError::passing("no answer")) } else { Ok(()) };
        std::future::ready(said)
    });
    Saga::builder("order").step(SagaStep::from(run).tries(ONCE)).build().unwrap()
}

async fn stuck_ones_do_not_delay_fresh_ones(ground: Ground) {
    let runs = Arc::new(Semaphore::new(0));
    let (saga, engine) = (order(&runs), ground.engine());
    let operation = |key: String, context| {
        let key = Key::client(key).unwrap();
        saga.operation(Scope::builder(), key, &context).unwrap()
    };
    let numbers: Vec<usize> = (0..STUCK).collect();
    for some in numbers.chunks(500) {
        let some = some.iter().map(|number| operation(format!("stuck-{number}"), STUBBORN));
        let all = some.map(|operation| async {
            let operation = operation;
            saga.run(&engine, &operation).await.unwrap()
        });
        futures_util::future::join_all(all).await;
    }
    for number in 0..FRESH {
        let operation = operation(format!("fresh-{number}"), STUBBORN + 1);
        // Given up by its owner, who has done nothing.
        drop(engine.begin(&operation).await.unwrap());
    }
    ground.much_later();
    let completer = Completer::new(&ground.engine(), eager()).with(saga.clone()).unwrap();
    let mut rounds = 0;
    while runs.available_permits() < FRESH && rounds < ROUNDS {
        let round = completer.round().await;
        assert!(round.seen <= STUCK, "a round is bounded: {round:?}");
        rounds += 1;
    }
    assert_eq!(runs.available_permits(), FRESH, "after {rounds} rounds");
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_sagas_delay_no_fresh_ones_on_memory() {
    stuck_ones_do_not_delay_fresh_ones(Ground::memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_sagas_delay_no_fresh_ones_on_embedded() {
    stuck_ones_do_not_delay_fresh_ones(Ground::embedded()).await;
}
