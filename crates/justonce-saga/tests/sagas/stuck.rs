//! What keeps failing: it is seen, the others are compensated all the same, and asking again goes
//! on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use justonce_core::{Key, Scope};
use justonce_saga::{
    Call, InvalidSaga, Mark, Saga, SagaEnd, SagaError, SagaRan, SagaStep, StepError, Tries, stuck,
};

use crate::ground::{Ground, on_every_store};

type Step = SagaStep<u64>;

const ONCE: Tries = Tries { most: 1, back_off: justonce_core::BackOff::DEFAULT };

fn counted(name: &str, undone: &Arc<AtomicU32>) -> Step {
    let undone = Arc::clone(undone);
    SagaStep::new(name, async |_: Call<u64>| Ok(())).undo(move |_| {
        undone.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(()))
    })
}

/// Its compensation fails until it is mended.
fn broken(name: &str, mended: &Arc<AtomicBool>) -> Step {
    let mended = Arc::clone(mended);
    SagaStep::new(name, async |_: Call<u64>| Ok(()))
        .undo(move |_| {
            let mended = mended.load(Ordering::SeqCst);
            let said = if mended { Ok(()) } else { Err(StepError::passing("the bank is away")) };
            std::future::ready(said)
        })
        .undo_tries(ONCE)
}

fn refused(name: &str) -> Step {
    SagaStep::new(name, async |_: Call<u64>| Err::<(), _>(StepError::permanent("no")))
        .undo(async |_| Ok(()))
}

async fn run(saga: &Saga<u64>, ground: &Ground) -> Result<SagaRan<u64>, SagaError> {
    let key = Key::client("order-17").unwrap();
    let operation = saga.operation(Scope::builder(), key, &17)?;
    saga.run(&ground.engine(), &operation).await
}

async fn a_stuck_saga(ground: Ground) {
    let (undone, mended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let saga = Saga::builder("order")
        .step(counted("reserve", &undone))
        .step(broken("charge", &mended))
        .step(counted("pack", &undone))
        .step(refused("ship"))
        .build()
        .unwrap();
    for _ in 0..2 {
        let SagaRan::Stuck(what) = run(&saga, &ground).await.unwrap() else { panic!("not stuck") };
        let steps: Vec<_> = what.steps.iter().map(|s| (s.planned.name.as_str(), s.mark)).collect();
        assert_eq!(steps, [("charge", Mark::StuckBack)]);
        assert_eq!(what.steps[0].why.as_deref(), Some("the bank is away"));
        assert_eq!(undone.load(Ordering::SeqCst), 2, "the others are compensated, once");
    }
    let (found, next) = stuck(&*ground.store, None, None).await.unwrap();
    assert!(next.is_none());
    let [found] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((found.saga.as_str(), found.key.as_str()), ("order", "order-17"));
    // Time alone never ends what is half done.
    ground.clock.advance(std::time::Duration::from_secs(400 * 24 * 3600));
    ground.engine().sweep(100).await.unwrap();
    mended.store(true, Ordering::SeqCst);
    let SagaRan::Ended(SagaEnd::RolledBack(back)) = run(&saga, &ground).await.unwrap() else {
        panic!("it was mended");
    };
    assert_eq!((back.step.as_str(), back.why.as_str()), ("ship", "no"));
    assert_eq!(undone.load(Ordering::SeqCst), 2);
    let again = run(&saga, &ground).await.unwrap();
    assert_eq!(again, SagaRan::Replayed(SagaEnd::RolledBack(back)));
    assert!(stuck(&*ground.store, None, None).await.unwrap().0.is_empty());
}

on_every_store!(a_stuck_saga:
    stuck_on_memory stuck_on_embedded stuck_on_redis stuck_on_postgres);

#[tokio::test]
async fn a_step_without_compensation_is_tried_again_and_never_given_up() {
    let ground = Ground::memory();
    let mended = Arc::new(AtomicBool::new(false));
    let there = Arc::clone(&mended);
    let ship = SagaStep::new("ship", move |_: Call<u64>| {
        let there = there.load(Ordering::SeqCst);
        std::future::ready(if there { Ok(()) } else { Err(StepError::passing("no answer")) })
    });
    let saga = Saga::builder("order").step(SagaStep::from(ship).tries(ONCE)).build().unwrap();
    let first = run(&saga, &ground).await.unwrap();
    assert!(matches!(first, SagaRan::Stuck(_)), "{first:?}");
    mended.store(true, Ordering::SeqCst);
    assert_eq!(run(&saga, &ground).await.unwrap(), SagaRan::Ended(SagaEnd::Done(17)));
}

#[tokio::test]
async fn another_context_under_the_same_key_is_a_mismatch() {
    let ground = Ground::memory();
    let saga = Saga::builder("order").step(refused("ship")).build().unwrap();
    run(&saga, &ground).await.unwrap();
    let key = Key::client("order-17").unwrap();
    let other = saga.operation(Scope::builder(), key, &18).unwrap();
    assert_eq!(saga.run(&ground.engine(), &other).await.unwrap(), SagaRan::Mismatch);
}

#[tokio::test]
async fn a_new_release_with_other_steps_executes_nothing() {
    let ground = Ground::memory();
    let mended = Arc::new(AtomicBool::new(false));
    let old = [broken("charge", &mended), refused("ship")].into_iter();
    let old = old.fold(Saga::builder("order"), |saga, step| saga.step(step)).build().unwrap();
    assert!(matches!(run(&old, &ground).await.unwrap(), SagaRan::Stuck(_)));
    let new = Saga::builder("order").step(refused("pay")).step(refused("ship")).build().unwrap();
    let said = run(&new, &ground).await.unwrap_err();
    assert!(matches!(said, SagaError::Changed(_)), "{said}");
    assert!(said.to_string().contains("(charge, ship)"), "{said}");
    assert!(said.to_string().contains("(pay, ship)"), "{said}");
    mended.store(true, Ordering::SeqCst);
    assert!(matches!(run(&old, &ground).await.unwrap(), SagaRan::Ended(_)));
}

#[test]
fn impossible_sagas_are_refused() {
    let step = |name: &str| SagaStep::<u64>::from(SagaStep::new(name, async |_: Call<u64>| Ok(())));
    let build = |saga: justonce_saga::SagaBuilder<u64>| saga.build().unwrap_err();
    let saga = || Saga::builder("order");
    assert_eq!(build(saga()), InvalidSaga::Steps(0));
    assert_eq!(build(saga().step(step("a")).step(step("a"))), InvalidSaga::Name("a".into()));
    assert_eq!(build(saga().beside(step("a"))), InvalidSaga::Beside("a".into()));
    let lonely = saga().step(refused("a")).beside(step("b"));
    assert_eq!(build(lonely), InvalidSaga::NoCompensation("b".into()));
}
