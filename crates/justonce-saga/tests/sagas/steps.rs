//! How single steps are called.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use justonce_core::{BackOff, Entropy, Key, Scope};
use justonce_saga::{Call, Saga, SagaEnd, SagaRan, SagaStep, StepError, Tries};
use tokio::sync::Barrier;
use tokio::time::Instant;

use crate::ground::Ground;

async fn run(saga: &Saga<u64>, ground: &Ground, name: &str) -> SagaRan<u64> {
    let key = Key::client(name).unwrap();
    let operation = saga.operation(Scope::builder(), key, &17).unwrap();
    saga.run(&ground.engine(), &operation).await.unwrap()
}

#[tokio::test]
async fn steps_beside_each_other_run_at_the_same_time() {
    let both = Arc::new(Barrier::new(2));
    let step = |name: &str| {
        let both = Arc::clone(&both);
        let run = move |_: Call<u64>| {
            let both = Arc::clone(&both);
            async move { Ok::<bool, StepError>(both.wait().await.is_leader()) }
        };
        SagaStep::new(name, run).undo(async |_| Ok(()))
    };
    let saga = Saga::builder("order").step(step("a")).beside(step("b")).build().unwrap();
    let ran = run(&saga, &Ground::memory(), "order-17").await;
    assert_eq!(ran, SagaRan::Ended(SagaEnd::Done(17)));
}

#[tokio::test(start_paused = true)]
async fn a_step_is_tried_again_with_growing_pauses_and_one_key() {
    let second = Duration::from_secs(1);
    let calls: Arc<Mutex<Vec<(Instant, Key, u32)>>> = Arc::default();
    let seen = Arc::clone(&calls);
    let step = SagaStep::new("charge", move |call: Call<u64>| {
        seen.lock().unwrap().push((Instant::now(), call.key().clone(), call.attempt()));
        let said = if call.attempt() < 4 { Err(StepError::passing("busy")) } else { Ok(()) };
        std::future::ready(said)
    });
    let back_off = BackOff { first: second, max: second * 8 };
    let saga = Saga::builder("order")
        .step(step.undo(async |_| Ok(())).tries(Tries { most: 4, back_off }))
        .entropy(Entropy::seeded(1))
        .build()
        .unwrap();
    let ran = run(&saga, &Ground::memory(), "order-17").await;
    assert_eq!(ran, SagaRan::Ended(SagaEnd::Done(17)));
    let calls = calls.lock().unwrap();
    assert_eq!(calls.iter().map(|call| call.2).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(calls.iter().all(|call| call.1 == calls[0].1));
    for (pair, most) in calls.windows(2).zip([second, second * 2, second * 4]) {
        let pause = pair[1].0 - pair[0].0;
        // Timers are whole milliseconds, rounded up.
        let slack = Duration::from_millis(2);
        assert!(pause >= most / 2 && pause <= most + slack, "{pause:?} of {most:?}");
    }
}

#[tokio::test]
async fn every_step_and_compensation_of_every_saga_has_its_own_key() {
    let keys: Arc<Mutex<Vec<Key>>> = Arc::default();
    let step = |name: &str, refused: bool| {
        let (there, back) = (Arc::clone(&keys), Arc::clone(&keys));
        let run = move |call: Call<u64>| {
            assert_eq!(call.key(), call.step_key());
            there.lock().unwrap().push(call.key().clone());
            std::future::ready(if refused { Err(StepError::permanent("no")) } else { Ok(()) })
        };
        let undo = move |call: Call<u64>| {
            let mut keys = back.lock().unwrap();
            assert!(keys.contains(call.step_key()), "it names what it undoes");
            keys.push(call.key().clone());
            std::future::ready(Ok(()))
        };
        SagaStep::new(name, run).undo(undo)
    };
    let steps = [step("a", false), step("b", false), step("c", true)].into_iter();
    let saga = steps.fold(Saga::builder("order"), |saga, step| saga.step(step)).build().unwrap();
    let ground = Ground::memory();
    for name in ["order-17", "order-18"] {
        let ran = run(&saga, &ground, name).await;
        assert!(matches!(ran, SagaRan::Ended(SagaEnd::RolledBack(_))), "{ran:?}");
    }
    let mut keys = keys.lock().unwrap().clone();
    assert_eq!(keys.len(), 10, "three steps and two compensations, twice");
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 10);
}
