//! What hangs, what can never be saved and what is stuck: none of it stops a node, repeats itself
//! for ever, or delays what is fresh.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use justonce_core::store::ListQuery;
use justonce_core::{
    BackOff, HandlerError, Key, OnLapsed, Operation, Outcome, Policy, Scope, StateName,
};
use justonce_saga::{
    Call, Completer, CompleterSettings, Phases, PhasesError, Retried, Saga, SagaEnd, SagaRan,
    SagaState, SagaStep, SeenSaga, StepError, StuckSaga, Tries, retry, stuck,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use crate::ground::{Ground, on_every_store};

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

/// How many drives may fail in the test of parking.
const PARK_AFTER: u32 = 4;

/// Counts its runs, and panics until it is mended.
fn panicking(runs: &Arc<AtomicU32>, mended: &Arc<AtomicBool>) -> Saga<u64> {
    let (runs, mended) = (Arc::clone(runs), Arc::clone(mended));
    let run = move |_: Call<u64>| {
        runs.fetch_add(1, Ordering::SeqCst);
        assert!(mended.load(Ordering::SeqCst), "on purpose");
        std::future::ready(Ok::<(), StepError>(()))
    };
    Saga::builder("order").step(SagaStep::new("run", run)).build().unwrap()
}

/// Processes that are started, drive once and are gone, until one has parked something. What a
/// process remembers is gone with it; what counts is in the record.
async fn parked_by_restarts(ground: &Ground, saga: &Saga<u64>) {
    let every = Duration::from_millis(100);
    let settings = CompleterSettings { every, park_after: PARK_AFTER, ..eager() };
    let restarting = async {
        loop {
            let completer = Completer::new(&ground.engine(), settings).with(saga.clone()).unwrap();
            let round = loop {
                let round = completer.round().await;
                if !round.troubles.is_empty() {
                    break round;
                }
                sleep(every / 10).await; // tidy: allow-sleep: pauses are real time
            };
            let told = round.troubles.concat();
            if !round.newly_parked.is_empty() {
                assert!(told.contains("parked until it is retried"), "{told}");
                return;
            }
            assert!(told.contains("panicked"), "{told}");
            ground.much_later();
        }
    };
    timeout(LOST_AFTER, restarting).await.expect("it is never parked");
}

async fn what_fails_for_ever_is_parked(ground: Ground) {
    let (runs, mended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let saga = panicking(&runs, &mended);
    left(&ground, &saga, "order-17").await;
    ground.much_later();
    parked_by_restarts(&ground, &saga).await;
    // The first claim was given up by the one who died; each of the others called the step.
    assert_eq!(runs.load(Ordering::SeqCst), PARK_AFTER - 1);
    let engine = ground.engine();
    let (found, _) = stuck(&*ground.store, None, None).await.unwrap();
    let [found] = found.as_slice() else { panic!("{found:?}") };
    let why = found.stuck.parked.as_deref().unwrap();
    assert!(why.contains("4 drives in a row"), "{why}");
    let stored = engine.store().get(&found.id).await.unwrap().unwrap();
    assert_eq!(SeenSaga::of(&stored).unwrap().state, SagaState::Parked);
    // Nobody drives it: neither a caller nor another completer, which counts it.
    mended.store(true, Ordering::SeqCst);
    let key = Key::client("order-17").unwrap();
    let operation = saga.operation(Scope::builder(), key, &17).unwrap();
    let ran = saga.run(&engine, &operation).await.unwrap();
    assert!(matches!(ran, SagaRan::Stuck(StuckSaga { parked: Some(_), .. })), "{ran:?}");
    let settings = CompleterSettings { every: Duration::from_millis(200), ..eager() };
    let completer = Completer::new(&engine, settings).with(saga.clone()).unwrap();
    for _ in 0..3 {
        ground.much_later();
        let round = completer.round().await;
        assert_eq!((round.ended, round.not_yet), (0, 0));
    }
    assert_eq!(completer.round().await.parked, 1);
    assert_eq!(runs.load(Ordering::SeqCst), PARK_AFTER - 1);
    // Until somebody retries it.
    assert_eq!(retry(&engine, found.id, "ann").await.unwrap(), Retried::Due);
    let drive = async {
        while completer.round().await.ended == 0 {
            ground.much_later();
        }
    };
    timeout(LOST_AFTER, drive).await.expect("it is not driven after a retry");
    let ran = saga.run(&engine, &operation).await.unwrap();
    assert_eq!(ran, SagaRan::Replayed(SagaEnd::Done(17)));
    assert_eq!(runs.load(Ordering::SeqCst), PARK_AFTER);
}

on_every_store!(what_fails_for_ever_is_parked:
    parked_on_memory parked_on_embedded parked_on_redis parked_on_postgres);

#[tokio::test]
async fn phases_that_fail_for_ever_are_parked_too() {
    let ground = Ground::memory();
    let policy = Policy::builder().on_lapsed(OnLapsed::Resume).max_attempts(None).build().unwrap();
    let scope = Scope::builder().operation("signup").build().unwrap();
    let operation =
        Operation::without_fingerprint(scope, Key::client("ada").unwrap()).with_policy(policy);
    let phases = Phases::new(["welcome", "bill"]).unwrap();
    let operation = phases.asked(operation, &"ada@example.org").unwrap();
    drop(ground.engine().begin(&operation).await.unwrap());
    ground.much_later();
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let settings = CompleterSettings { park_after: PARK_AFTER, ..eager() };
    let completer = Completer::new(&ground.engine(), settings)
        .with_phases("signup", &phases, move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Err::<Outcome, _>(HandlerError::Unknown))
        })
        .unwrap();
    let rounds = async {
        while completer.round().await.newly_parked.is_empty() {
            ground.much_later();
        }
    };
    timeout(LOST_AFTER, rounds).await.expect("it is never parked");
    assert_eq!(runs.load(Ordering::SeqCst), PARK_AFTER - 1);
    let (found, _) = stuck(&*ground.store, None, None).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].saga, "signup");
    let engine = ground.engine();
    let said = phases.run(&engine, &operation, async |_| panic!("it is parked")).await;
    assert!(matches!(said, Err(PhasesError::Parked(_))), "{said:?}");
    assert_eq!(retry(&engine, operation.id(), "ann").await.unwrap(), Retried::Due);
    let ran = phases.run(&engine, &operation, async |_| Ok(Outcome::bytes("billed"))).await;
    assert_eq!(ran.unwrap().outcome(), Some(&Outcome::bytes("billed")));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_hangs_counts_as_one_that_may_have_taken_effect() {
    let second = Duration::from_secs(1);
    let hanging = |limit: Option<Duration>| {
        let step =
            SagaStep::new("hang", |_: Call<u64>| std::future::pending::<Result<(), StepError>>());
        let step = SagaStep::from(step).tries(ONCE);
        match limit {
            Some(limit) => step.timeout(limit),
            None => step,
        }
    };
    let of_saga = Saga::builder("order").step_timeout(second * 5);
    for (builder, limit, expected) in [
        (Saga::builder("order"), None, second * 60),
        (Saga::builder("order"), Some(second), second),
        (of_saga, None, second * 5),
    ] {
        let saga = builder.step(hanging(limit)).build().unwrap();
        let key = Key::client("order-17").unwrap();
        let operation = saga.operation(Scope::builder(), key, &17).unwrap();
        let start = Instant::now();
        let ran = saga.run(&Ground::memory().engine(), &operation).await.unwrap();
        let SagaRan::Stuck(what) = ran else { panic!("{ran:?}") };
        assert!(what.steps[0].why.as_deref().unwrap().contains("no answer within"), "{what:?}");
        assert!((expected..expected + second).contains(&start.elapsed()), "{:?}", start.elapsed());
    }
    // A compensation too.
    let undo = SagaStep::new("charge", async |_: Call<u64>| Ok(()))
        .undo(|_| std::future::pending::<Result<(), StepError>>())
        .undo_tries(ONCE)
        .timeout(second);
    let refused =
        SagaStep::new("ship", async |_: Call<u64>| Err::<(), _>(StepError::permanent("no")));
    let saga = Saga::builder("order").step(undo).step(refused).build().unwrap();
    let key = Key::client("order-17").unwrap();
    let operation = saga.operation(Scope::builder(), key, &17).unwrap();
    let ran = saga.run(&Ground::memory().engine(), &operation).await.unwrap();
    assert!(matches!(ran, SagaRan::Stuck(_)), "{ran:?}");
}

#[tokio::test]
async fn sagas_that_failed_before_leave_places_for_fresh_ones() {
    let ground = Ground::memory();
    let (runs, hangs) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let hanging = Arc::new(AtomicBool::new(false));
    let (fresh, entered, hang) = (Arc::clone(&runs), Arc::clone(&hangs), Arc::clone(&hanging));
    let run = SagaStep::new("run", move |call: Call<u64>| {
        let is_stubborn = *call.context() == STUBBORN;
        let hangs = is_stubborn && hang.load(Ordering::SeqCst);
        entered.add_permits(usize::from(hangs));
        fresh.add_permits(usize::from(!is_stubborn));
        async move {
            match (is_stubborn, hangs) {
                (false, _) => Ok::<(), StepError>(()),
                (true, false) => Err(StepError::passing("no answer")),
                (true, true) => std::future::pending().await,
            }
        }
    });
    let saga = Saga::builder("order").step(SagaStep::from(run).tries(ONCE)).build().unwrap();
    let operation = |number: u64, context: u64| {
        let key = Key::client(format!("order-{number}-{context}")).unwrap();
        saga.operation(Scope::builder(), key, &context).unwrap()
    };
    let engine = ground.engine();
    for number in 0..20 {
        saga.run(&engine, &operation(number, STUBBORN)).await.unwrap();
    }
    hanging.store(true, Ordering::SeqCst);
    ground.much_later();
    let settings = CompleterSettings { at_once: 4, retry_stuck: Some(Duration::ZERO), ..eager() };
    let completer = Completer::new(&engine, settings).with(saga.clone()).unwrap();
    let _completing = completer.start(|_| {});
    timeout(LOST_AFTER, hangs.acquire_many(2))
        .await
        .expect("none was tried again")
        .unwrap()
        .forget();
    for number in 0..10 {
        drop(engine.begin(&operation(number, STUBBORN + 1)).await.unwrap());
    }
    ground.much_later();
    let all = timeout(LOST_AFTER, runs.acquire_many(10)).await;
    assert!(all.is_ok(), "{} of 10 fresh sagas were driven", runs.available_permits());
    assert_eq!(hangs.available_permits(), 0, "half of the places are kept for fresh ones");
}
