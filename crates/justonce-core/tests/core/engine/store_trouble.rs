//! Lost requests, lost replies and a store that is away: nothing runs twice, nothing is forgotten.

use std::sync::{Arc, Mutex};

use justonce_core::engine::{Begun, RunError};
use justonce_core::store::{Fault, Faulty, Records, Retry, RetryPolicy};
use justonce_core::{
    Action, Answer, Effect, Engine, Entropy, Existing, HandlerError, OnFailure, OnLapsed, Outcome,
    Ran, StateName, Step, StoreError, StoreErrorKind,
};
use tokio::time::Instant;

use crate::common::erring::Erring;
use crate::common::handlers::{Count, done};
use crate::common::hooked::{Before, Hooked};
use crate::common::world::{LEASE, SECOND, World, breathe, named, operation, pass, policy, seeded};

const POLICIES: [OnLapsed; 3] = [OnLapsed::Rerun, OnLapsed::Resume, OnLapsed::Hold];

#[tokio::test(start_paused = true)]
async fn a_begin_that_does_not_arrive_executes_nothing_and_leaves_nothing() {
    for fault in [Fault::NotApplied, Fault::LostRequest, Fault::LostReply] {
        for on_lapsed in POLICIES {
            let world = World::new();
            let operation = operation(policy(on_lapsed));
            world.faults.next("begin", [fault]);
            let ran = world.engine.run(&operation, async |_| panic!("it was not claimed"));
            let Err(RunError::Store(error)) = ran.await else {
                panic!("it must be an error of the store")
            };
            let surely = (error.effect() == Effect::NotApplied) == (fault == Fault::NotApplied);
            assert!(surely, "{fault:?} {error}");
            breathe().await;
            // Given back, whether it was claimed or not: nothing was executed under it.
            assert_eq!(world.state(&operation).await, StateName::Absent, "{fault:?}");
            assert_eq!(world.engine.load().executing, 0);
            let start = Instant::now();
            let ran = world.engine.run(&operation, async |_| Ok(done())).await;
            assert_eq!(ran.unwrap(), Ran::Executed(done()), "{fault:?} {on_lapsed:?}");
            assert!(start.elapsed() < SECOND);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_begin_is_given_back_once_the_store_is_there_again() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    world.faults.next("begin", [Fault::LostReply; 30]);
    world.faults.next("release", [Fault::LostRequest; 3]);
    let ran = world.engine.run(&operation, async |_| panic!("it was not claimed")).await;
    assert!(matches!(ran, Err(RunError::Store(_))));
    pass(2 * SECOND).await;
    assert_eq!(world.state(&operation).await, StateName::InProgress, "it is tried further");
    pass(3 * SECOND).await;
    assert_eq!(world.state(&operation).await, StateName::Absent);
    let (so_far, looks) = (world.calls.count(), world.calls.of("get"));
    pass(2 * LEASE).await;
    assert_eq!(world.calls.of("get"), 2, "it is looked for again");
    assert_eq!(world.calls.count() - 2, so_far - looks, "and else left alone");
}

/// The store stands still for longer than a lease, and then carries out all that was sent to it.
#[tokio::test(start_paused = true)]
async fn begins_that_are_carried_out_after_the_lease_are_given_back() {
    let world = World::new();
    let waiting = Arc::new(Mutex::new(Some(Vec::new())));
    let socket = Arc::clone(&waiting);
    let store = Erring::new(world.store.clone(), move |step| {
        socket.lock().unwrap().as_mut().map(|steps| {
            steps.push(step.clone());
            StoreError::maybe_applied(StoreErrorKind::TimedOut, "it stands still")
        })
    });
    let engine = seeded(Engine::builder(store), 3).build();
    let operations: Vec<_> =
        (0..100).map(|n| named(&format!("order-{n}"), policy(OnLapsed::Hold))).collect();
    for operation in &operations {
        let ran = engine.run(operation, async |_| panic!("it was not claimed")).await;
        assert!(matches!(ran, Err(RunError::Store(_))));
    }
    pass(3 * LEASE).await;
    let steps = waiting.lock().unwrap().take().unwrap();
    assert!(steps.len() > operations.len(), "it is still tried");
    for step in &steps {
        world.store.apply(step).await.unwrap();
    }
    for operation in &operations {
        assert_eq!(world.state(operation).await, StateName::InProgress);
    }
    pass(SECOND).await;
    for operation in &operations {
        assert_eq!(world.state(operation).await, StateName::Absent, "well before the lease");
    }
}

/// A store with several connections, in which what was asked last is done first.
#[tokio::test(start_paused = true)]
async fn a_begin_that_is_carried_out_after_it_was_given_back_is_given_back_again() {
    for late in [SECOND / 2, LEASE / 2 - SECOND / 2] {
        let world = World::new();
        let overtaken = Arc::new(Mutex::new(None));
        let socket = Arc::clone(&overtaken);
        let store = Erring::new(world.store.clone(), move |step| {
            let mut overtaken = socket.lock().unwrap();
            overtaken.is_none().then(|| {
                *overtaken = Some(step.clone());
                StoreError::maybe_applied(StoreErrorKind::TimedOut, "it is on its way")
            })
        });
        let engine = seeded(Engine::builder(store), 3).build();
        let operation = operation(policy(OnLapsed::Hold));
        let ran = engine.run(&operation, async |_| panic!("it was not claimed")).await;
        assert!(matches!(ran, Err(RunError::Store(_))));
        breathe().await;
        assert_eq!(world.state(&operation).await, StateName::Absent, "given back already");
        pass(late).await;
        let step = overtaken.lock().unwrap().clone().unwrap();
        world.store.apply(&step).await.unwrap();
        assert_eq!(world.state(&operation).await, StateName::InProgress);
        pass(SECOND).await;
        assert_eq!(world.state(&operation).await, StateName::Absent, "{late:?}");
    }
}

/// The first try of a begin, which the store has not carried out yet.
type FirstTry = Arc<Mutex<Option<Step>>>;

/// An engine whose store tries again, and in which the first try of a begin is on its way for as
/// long as the test likes. Abandons do not arrive.
fn trying_again(world: &World) -> (Engine, FirstTry) {
    let first = FirstTry::default();
    let socket = Arc::clone(&first);
    let store = Erring::new(world.store.clone(), move |step| {
        let mut first = socket.lock().unwrap();
        let late = || StoreError::maybe_applied(StoreErrorKind::TimedOut, "it is on its way");
        match step.action {
            Action::Begin(_) if first.is_none() => {
                *first = Some(step.clone());
                Some(late())
            }
            Action::Abandon(..) => Some(late()),
            _ => None,
        }
    });
    let entropy = Arc::new(Entropy::seeded(4));
    let store = Retry::new(store, RetryPolicy::default(), entropy);
    (seeded(Engine::builder(store), 3).build(), first)
}

async fn carry_out(first: &FirstTry, world: &World) -> Answer {
    let step = first.lock().unwrap().clone().unwrap();
    world.store.apply(&step).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_first_try_that_is_carried_out_after_the_second_was_released_is_given_back() {
    for late in [SECOND / 2, LEASE / 2 - SECOND / 2] {
        let world = World::new();
        let (engine, first) = trying_again(&world);
        let operation = operation(policy(OnLapsed::Hold));
        let ran = engine.run(&operation, async |_| Err(HandlerError::NotExecuted)).await;
        assert_eq!(ran.unwrap(), Ran::Released);
        pass(late).await;
        assert!(matches!(carry_out(&first, &world).await, Answer::Claimed(_)));
        assert_eq!(world.state(&operation).await, StateName::InProgress);
        pass(SECOND).await;
        assert_eq!(world.state(&operation).await, StateName::Absent, "{late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_try_that_is_carried_out_after_somebody_elses_claim_is_given_back() {
    let world = World::new();
    let (engine, first) = trying_again(&world);
    let operation = operation(policy(OnLapsed::Hold));
    let Begun::Claimed(mut claim) = world.engine.begin(&operation).await.unwrap() else {
        panic!("it was new")
    };
    let ran = engine.run(&operation, async |_| panic!("it is running")).await;
    assert!(matches!(ran, Ok(Ran::Busy(_))));
    assert!(claim.release().await.is_ok());
    assert!(matches!(carry_out(&first, &world).await, Answer::Claimed(_)));
    pass(2 * SECOND).await;
    assert_eq!(world.state(&operation).await, StateName::Absent);
}

#[tokio::test(start_paused = true)]
async fn a_claim_under_which_something_ran_is_not_taken_for_one_that_nobody_holds() {
    let world = World::new();
    let (engine, _first) = trying_again(&world);
    let operation = operation(policy(OnLapsed::Hold));
    let run = engine.run(&operation, async |_| std::future::pending().await);
    assert!(tokio::time::timeout(SECOND, run).await.is_err());
    for _ in 0..10 {
        pass(LEASE / 4).await;
        assert_ne!(world.state(&operation).await, StateName::Absent, "it may have taken effect");
    }
    assert!(matches!(world.engine.peek(&operation).await, Ok(Some(Existing::Unknown(_)))));
}

#[tokio::test(start_paused = true)]
async fn a_begin_that_hangs_is_given_back_though_its_repetition_hangs_too() {
    let world = World::new();
    let tries = Count::default();
    let store = Hooked::new(world.store.clone(), move |step| -> Before {
        if matches!(step.action, Action::Begin(_)) && tries.add() == 2 {
            return Box::pin(std::future::pending());
        }
        Box::pin(async {})
    });
    // The first begin is carried out, and its reply is lost.
    let store = Faulty::new(store, world.faults.clone());
    world.faults.next("begin", [Fault::LostReply]);
    let engine = seeded(Engine::builder(store), 3).build();
    let operation = operation(policy(OnLapsed::Hold));
    let ran = engine.run(&operation, async |_| panic!("it was not claimed")).await;
    assert!(matches!(ran, Err(RunError::Store(_))));
    assert_eq!(world.state(&operation).await, StateName::InProgress);
    pass(LEASE / 2).await;
    assert_eq!(world.state(&operation).await, StateName::Absent);
}

#[tokio::test(start_paused = true)]
async fn a_begin_that_did_not_happen_is_not_repeated() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    world.faults.next("begin", [Fault::NotApplied]);
    let ran = world.engine.run(&operation, async |_| panic!("it was not claimed")).await;
    assert!(matches!(ran, Err(RunError::Store(_))));
    pass(LEASE).await;
    assert_eq!(world.calls.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_complete_whose_reply_is_lost_is_tried_again() {
    for fault in [Fault::NotApplied, Fault::LostRequest, Fault::LostReply] {
        let world = World::new();
        let operation = operation(policy(OnLapsed::Hold));
        let count = Count::default();
        world.faults.next("complete", [fault, fault]);
        let ran = world.engine.run(&operation, async |_| {
            count.add();
            Ok(done())
        });
        assert_eq!(ran.await.unwrap(), Ran::Executed(done()), "{fault:?}");
        assert_eq!((count.get(), world.calls.of("complete")), (1, 3));
        let ran = world.engine.run(&operation, async |_| panic!("it is stored"));
        assert_eq!(ran.await.unwrap(), Ran::Replayed(done()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_stored_yet_is_handed_over_and_stored_later() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    world.faults.always("complete", Fault::LostRequest);
    let start = Instant::now();
    let ran = world.engine.run(&operation, async |_| Ok(done())).await;
    let Err(RunError::NotStored { outcome, source }) = ran else {
        panic!("it cannot be stored yet, but {ran:?}")
    };
    assert_eq!((*outcome, source.effect()), (done(), Effect::MayHaveBeenApplied));
    assert!((4 * SECOND..=5 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
    // Longer than the lease: it is still renewed, so nobody else gets it and it is not unknown.
    for _ in 0..10 {
        pass(LEASE / 2).await;
        let ran = world.engine.run(&operation, async |_| panic!("it was executed"));
        assert!(matches!(ran.await.unwrap(), Ran::Busy(_)));
    }
    world.faults.heal();
    pass(6 * SECOND).await;
    let ran = world.engine.run(&operation, async |_| panic!("it is stored now"));
    assert_eq!(ran.await.unwrap(), Ran::Replayed(done()));
    assert_eq!(world.engine.load().executing, 0);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_is_never_stored_ends_as_the_policy_says() {
    for (on_lapsed, expected) in [(OnLapsed::Hold, true), (OnLapsed::Rerun, false)] {
        let world = World::new();
        let operation = operation(policy(on_lapsed).lease_cap(2 * LEASE));
        world.faults.always("complete", Fault::LostRequest);
        let ran = world.engine.run(&operation, async |_| Ok(done())).await;
        assert!(matches!(ran, Err(RunError::NotStored { .. })));
        pass(4 * LEASE).await;
        let peeked = world.engine.peek(&operation).await.unwrap();
        assert_eq!(matches!(peeked, Some(Existing::Unknown(_))), expected, "{peeked:?}");
        assert_eq!(peeked.is_none(), !expected);
        assert_eq!(world.engine.load().executing, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_has_stopped_is_not_tried_again() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let count = Count::default();
    let tries = count.clone();
    let store = Erring::new(world.store.clone(), move |step| match step.action {
        Action::Complete(..) => {
            tries.add();
            Some(StoreError::not_applied(StoreErrorKind::Stopped, "the disk is full"))
        }
        _ => None,
    });
    let engine = seeded(Engine::builder(store), 2).build();
    let ran = engine.run(&operation, async |_| Ok(done())).await;
    let Err(RunError::NotStored { outcome, source }) = ran else {
        panic!("it cannot be stored, but {ran:?}")
    };
    assert_eq!((*outcome, source.kind()), (done(), StoreErrorKind::Stopped));
    pass(LEASE).await;
    assert_eq!(count.get(), 1);
    assert!(matches!(world.engine.peek(&operation).await, Ok(Some(Existing::Unknown(_)))));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_always_fails_runs_nothing() {
    for fault in [Fault::NotApplied, Fault::LostRequest] {
        for on_lapsed in POLICIES {
            let world = World::new();
            let operation = operation(policy(on_lapsed));
            for step in ["begin", "peek", "release"] {
                world.faults.always(step, fault);
            }
            for _ in 0..20 {
                let ran = world.engine.run(&operation, async |_| panic!("fail closed"));
                assert!(matches!(ran.await, Err(RunError::Store(_))), "{fault:?}");
                pass(SECOND).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_know_is_never_told_that_nothing_ran() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    world.faults.always("peek", Fault::LostRequest);
    let ran = world.engine.run(&operation, async |_| Err(HandlerError::Unknown)).await;
    assert!(ran.is_ok(), "an error of the store would say that nothing was executed: {ran:?}");
    assert_eq!(world.state(&operation).await, StateName::Unknown);
}

type Said = Result<Outcome, HandlerError>;

/// All a handler can say, and how the run ends then when the store is well.
fn endings() -> Vec<(&'static str, Said)> {
    vec![
        ("outcome", Ok(done())),
        ("passing", Err(HandlerError::retryable("no luck"))),
        ("permanent", Err(HandlerError::permanent("never"))),
        ("nothing", Err(HandlerError::NotExecuted)),
        ("unknown", Err(HandlerError::Unknown)),
    ]
}

/// A whole run with checkpoint and renewals. Gives how it ended and how often it was executed.
async fn whole_run(
    world: &World,
    on_lapsed: OnLapsed,
    on_failure: OnFailure,
    said: &Said,
) -> (Result<Ran, RunError>, usize) {
    let operation = operation(policy(on_lapsed).on_failure(on_failure));
    let count = Count::default();
    let ran = world.engine.run(&operation, async |context| {
        count.add();
        // A checkpoint that cannot be saved is the handler's business; this one goes on.
        let _ = context.save("half", "way").await;
        pass(LEASE / 2).await;
        said.clone()
    });
    (ran.await, count.get())
}

#[tokio::test(start_paused = true)]
async fn a_network_that_repeats_every_step_changes_nothing_visible() {
    let back_off = justonce_core::Policy::default().on_failure();
    for on_lapsed in POLICIES {
        for on_failure in [back_off, OnFailure::Release, OnFailure::Replay] {
            for (name, said) in endings() {
                let well = World::new();
                let (expected, _) = whole_run(&well, on_lapsed, on_failure, &said).await;
                // Its time begins anew, so that both runs end at the same moment of their time.
                let ill = World::new();
                for step in
                    ["begin", "complete", "fail", "release", "renew", "checkpoint", "abandon"]
                {
                    ill.faults.always(step, Fault::Repeated);
                }
                let (ran, count) = whole_run(&ill, on_lapsed, on_failure, &said).await;
                let what = format!("{name} {on_lapsed:?} {on_failure:?}");
                assert_eq!(ran.unwrap(), expected.unwrap(), "{what}");
                assert_eq!(count, 1, "{what}");
                let operation = operation(policy(on_lapsed));
                assert_eq!(ill.state(&operation).await, well.state(&operation).await, "{what}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_fault_at_every_step_of_a_run_executes_at_most_once() {
    let steps = ["begin", "peek", "complete", "fail", "release", "renew", "checkpoint", "abandon"];
    let mut cases = 0;
    for step in steps {
        for fault in Fault::ALL {
            for times in [1, 3, usize::MAX] {
                for on_lapsed in POLICIES {
                    for (name, said) in endings() {
                        let what = format!("{fault:?} x{times} at {step}: {name} {on_lapsed:?}");
                        at_most_once((step, fault, times), on_lapsed, &said, &what).await;
                        cases += 1;
                    }
                }
            }
        }
    }
    assert_eq!(cases, 8 * 5 * 3 * 3 * 5);
}

async fn at_most_once(
    (step, fault, times): (&'static str, Fault, usize),
    on_lapsed: OnLapsed,
    said: &Said,
    what: &str,
) {
    let world = World::new();
    match times {
        usize::MAX => world.faults.always(step, fault),
        times => world.faults.next(step, vec![fault; times]),
    }
    let (ran, count) = whole_run(&world, on_lapsed, OnFailure::Replay, said).await;
    assert!(count <= 1, "{what}: executed {count} times");
    if matches!(ran, Err(RunError::Store(_) | RunError::Overloaded { .. })) {
        assert_eq!(count, 0, "{what}: the error says that nothing was executed");
    }
    // A whole cap later everything has been settled, given back or has lapsed.
    pass(crate::common::world::LEASE_CAP).await;
    world.faults.heal();
    pass(LEASE).await;
    assert_eq!(world.engine.load().executing, 0, "{what}");
    let operation = operation(policy(on_lapsed));
    let now = world.engine.peek(&operation).await.unwrap();
    let settled = matches!(
        now,
        None | Some(Existing::Completed(_) | Existing::Failed(_) | Existing::Unknown(_))
    );
    assert!(settled, "{what}: {now:?}");
    if let (Ok(Ran::Executed(outcome)), Some(existing)) = (&ran, &now) {
        assert_eq!(existing.completed(), Some(outcome), "{what}");
    }
    let again = world.engine.run(&operation, async |_| Ok(done())).await;
    let executed_again = matches!(again, Ok(Ran::Executed(_)));
    let certainly_not_executed = count == 0 || *said == Err(HandlerError::NotExecuted);
    if on_lapsed == OnLapsed::Hold && !certainly_not_executed {
        assert!(!executed_again, "{what}: at most once was promised, {ran:?} then {again:?}");
    }
    if matches!(ran, Ok(Ran::Executed(_))) {
        assert!(matches!(again, Ok(Ran::Replayed(_))), "{what}: {again:?}");
    }
}
