//! What only phases promise.

use std::time::Duration;

use justonce_core::{
    Engine, HandlerError, Key, MAX_CHECKPOINT_BYTES, OnFailure, OnLapsed, Operation, Outcome,
    Policy, Ran, Scope, StateName,
};
use justonce_saga::{Phases, PhasesError, Retried, retry};
use tokio::time::Instant;

use crate::ground::Ground;

fn operation() -> Operation {
    let policy = Policy::builder().on_lapsed(OnLapsed::Resume).build().unwrap();
    Operation::without_fingerprint(Scope::global(), Key::client("order-17").unwrap())
        .with_policy(policy)
}

/// Runs `first`, then stops as if the process had died.
async fn begun(engine: &Engine, phases: &Phases) {
    let operation = phases.asked(operation(), &"room 17").unwrap();
    let ran = phases.run(engine, &operation, async |mut run| {
        let _: u32 = run.phase("first", async |_| Ok(1)).await?;
        Err(HandlerError::Unknown)
    });
    assert!(matches!(ran.await.unwrap(), Ran::Abandoned(_)));
}

#[tokio::test]
async fn a_finished_phase_is_handed_over_and_the_input_too() {
    let engine = Ground::memory().engine();
    let asked = operation();
    let phases = Phases::new(["first", "second"]).unwrap();
    begun(&engine, &phases).await;
    let ran = phases.run(&engine, &asked, async |mut run| {
        let first: u32 = run.phase("first", async |_| panic!("it is done")).await?;
        let input: String = run.input()?;
        let second: u32 = run.phase("second", async |_| Ok(first + 1)).await?;
        Ok(Outcome::bytes(format!("{input}: {second}")))
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(Outcome::bytes("room 17: 2")));
}

#[tokio::test]
async fn an_operation_may_end_early() {
    let engine = Ground::memory().engine();
    let asked = operation();
    let phases = Phases::new(["first", "second"]).unwrap();
    let ran = phases.run(&engine, &asked, async |mut run| {
        let first: u32 = run.phase("first", async |_| Ok(1)).await?;
        if first == 1 {
            return Ok(Outcome::bytes("early"));
        }
        let _: u32 = run.phase("second", async |_| panic!("it ended")).await?;
        Ok(Outcome::empty())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(Outcome::bytes("early")));
}

#[tokio::test]
async fn a_release_with_other_phases_executes_nothing_and_loses_nothing() {
    let ground = Ground::memory();
    let engine = ground.engine();
    let asked = operation();
    let old = Phases::new(["first", "second", "third"]).unwrap();
    begun(&engine, &old).await;
    for names in [["second", "first", "third"], ["first", "other", "third"]] {
        let new = Phases::new(names).unwrap();
        let said = new.run(&engine, &asked, async |_| panic!("it must not run")).await;
        let Err(PhasesError::Shape(changed)) = said else { panic!("{said:?}") };
        assert_eq!((changed.done, changed.declared), (1, names.map(String::from).to_vec()));
    }
    let ran = old.run(&engine, &asked, async |mut run| {
        let first: u32 = run.phase("first", async |_| panic!("it is done")).await?;
        Ok(Outcome::bytes(first.to_string()))
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(Outcome::bytes("1")));
}

#[tokio::test]
async fn what_the_program_does_wrong_is_told_and_nothing_is_lost() {
    let ground = Ground::memory();
    let engine = ground.engine();
    let asked = operation();
    let phases = Phases::new(["first", "second"]).unwrap();
    let skips = phases.run(&engine, &asked, async |mut run| {
        let _: u32 = run.phase("second", async |_| panic!("it must not run")).await?;
        Ok(Outcome::empty())
    });
    let skips: Result<Ran, PhasesError> = skips.await;
    assert!(matches!(skips, Err(PhasesError::Order { .. })), "{skips:?}");
    let large = phases.run(&engine, &asked, async |mut run| {
        let _: String = run.phase("first", async |_| Ok("x".repeat(MAX_CHECKPOINT_BYTES))).await?;
        panic!("it was not saved")
    });
    let said = large.await.unwrap_err();
    assert!(matches!(said, PhasesError::Unsavable { .. }), "{said}");
    // It would only run again and again, so nobody goes on with it before somebody retries it.
    let parked = phases.run(&engine, &asked, async |_| panic!("it is parked")).await;
    assert!(matches!(parked, Err(PhasesError::Parked(_))), "{parked:?}");
    assert_eq!(retry(&engine, asked.id(), "ann").await.unwrap(), Retried::Due);
    assert_eq!(retry(&engine, asked.id(), "ann").await.unwrap(), Retried::None);
    begun(&engine, &phases).await;
    let other = phases.run(&engine, &asked, async |mut run| {
        let _: Vec<String> = run.phase("first", async |_| panic!("it is done")).await?;
        panic!("it is of another type")
    });
    let said = other.await.unwrap_err();
    assert!(matches!(said, PhasesError::Unreadable { .. }), "{said}");
    let stored = ground.store.get(&asked.id()).await.unwrap().unwrap();
    assert_eq!(stored.entry.state_name(), StateName::InProgress);
    // Not even a handler that says so gives the key back: the first phase is done.
    let ran = phases.run(&engine, &asked, async |_| Err(HandlerError::NotExecuted)).await;
    assert!(matches!(ran.unwrap(), Ran::Abandoned(_)));
}

#[tokio::test]
async fn a_result_that_cannot_be_saved_parks_also_after_an_error_that_was_passed_over() {
    let engine = Ground::memory().engine();
    let asked = operation();
    let phases = Phases::new(["first", "second"]).unwrap();
    let large = phases.run(&engine, &asked, async |mut run| {
        let skipped: Result<u32, _> = run.phase("second", async |_| panic!("it is late")).await;
        assert!(skipped.is_err());
        let first = run.phase_within("first", async |phase| {
            let result = "x".repeat(MAX_CHECKPOINT_BYTES);
            phase.point(&result).map(|_| result)
        });
        let _: String = first.await?;
        panic!("it was not saved")
    });
    let said = large.await.unwrap_err();
    assert!(matches!(said, PhasesError::Unsavable { .. }), "{said}");
    let parked = phases.run(&engine, &asked, async |_| panic!("it is parked")).await;
    assert!(matches!(parked, Err(PhasesError::Parked(_))), "{parked:?}");
}

#[tokio::test]
async fn policies_that_would_forget_are_refused() {
    let engine = Ground::memory().engine();
    let phases = Phases::new(["first"]).unwrap();
    let release = Policy::builder().on_lapsed(OnLapsed::Resume).on_failure(OnFailure::Release);
    for policy in [Policy::builder(), release] {
        let operation = operation().with_policy(policy.build().unwrap());
        let said = phases.run(&engine, &operation, async |_| panic!("it must not run")).await;
        assert!(matches!(said, Err(PhasesError::Policy)), "{said:?}");
    }
    for names in [&["a", "a"][..], &[""], &[]] {
        assert!(Phases::new(names.iter().copied()).is_err(), "{names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_phase_that_hangs_is_given_up_in_time_and_begun_again() {
    let engine = Ground::memory().engine();
    let second = Duration::from_secs(1);
    let phases = Phases::new(["first", "second"]).unwrap().timeout_of("second", second);
    let (asked, start) = (operation(), Instant::now());
    let ran = phases.run(&engine, &asked, async |mut run| {
        let _: u32 = run.phase("first", async |_| Ok(1)).await?;
        let _: u32 = run.phase("second", async |_| std::future::pending().await).await?;
        panic!("it hangs")
    });
    assert!(matches!(ran.await.unwrap(), Ran::Abandoned(_)));
    assert!((second..second * 2).contains(&start.elapsed()), "{:?}", start.elapsed());
    let (phases, start) = (phases.timeout(second * 5), Instant::now());
    let ran = phases.run(&engine, &asked, async |mut run| {
        let first: u32 = run.phase("first", async |_| panic!("it is done")).await?;
        let _: u32 = run.phase("second", async |_| Ok(2)).await?;
        Ok(Outcome::bytes(first.to_string()))
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(Outcome::bytes("1")));
    assert!(start.elapsed() < second);
    // Nobody said how long: a minute.
    let hanging = Operation::without_fingerprint(Scope::global(), Key::client("order-18").unwrap());
    let hanging = hanging.with_policy(std::sync::Arc::clone(operation().policy()));
    let (phases, start) = (Phases::new(["first"]).unwrap(), Instant::now());
    let ran = phases.run(&engine, &hanging, async |mut run| {
        let _: u32 = run.phase("first", async |_| std::future::pending().await).await?;
        panic!("it hangs")
    });
    assert!(matches!(ran.await.unwrap(), Ran::Abandoned(_)));
    assert!((second * 60..second * 62).contains(&start.elapsed()), "{:?}", start.elapsed());
}
