//! What a run ends with, and what the next one hears of it.

use std::time::Duration;

use justonce_core::{
    AfterRetention, BackOff, BusyWhy, Classify, Existing, Fingerprint, HandlerError, Key,
    OnFailure, OnLapsed, Operation, Outcome, Policy, Ran, Scope, StateName, UnknownReason,
};

use crate::common::handlers::{Count, done};
use crate::common::world::{SECOND, START, World, attempts, operation, pass, policy};

fn back_off(first: Duration) -> OnFailure {
    OnFailure::Retry(BackOff { first, max: first })
}

#[tokio::test(start_paused = true)]
async fn executes_once_and_replays() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun));
    let count = Count::default();
    for round in 0..5 {
        let ran = world.engine.run(&operation, async |context| {
            count.add();
            assert_eq!(context.attempt(), 1);
            Ok(done())
        });
        let expected = match round {
            0 => Ran::Executed(done()),
            _ => Ran::Replayed(done()),
        };
        assert_eq!(ran.await.unwrap(), expected);
    }
    assert_eq!(count.get(), 1);
    assert_eq!(world.state(&operation).await, StateName::Completed);
}

#[tokio::test(start_paused = true)]
async fn one_key_for_two_things_is_a_mismatch() {
    let world = World::new();
    let asks = |what: &[u8]| {
        let fingerprint = Fingerprint::of(&Scope::global(), what);
        operation(policy(OnLapsed::Rerun)).with_fingerprint(fingerprint)
    };
    let (five, six) = (asks(b"5"), asks(b"6"));
    let ran = world.engine.run(&five, async |_| Ok(done())).await;
    assert_eq!(ran.unwrap(), Ran::Executed(done()));
    let ran = world.engine.run(&six, async |_| panic!("it is another thing"));
    assert_eq!(ran.await.unwrap(), Ran::Mismatch);
    let ran = world.engine.run(&five, async |_| panic!("it runs once"));
    assert_eq!(ran.await.unwrap(), Ran::Replayed(done()));
}

#[tokio::test(start_paused = true)]
async fn a_running_operation_mismatches_too() {
    let world = World::new();
    let asks = |what: &[u8]| {
        let fingerprint = Fingerprint::of(&Scope::global(), what);
        operation(policy(OnLapsed::Rerun)).with_fingerprint(fingerprint)
    };
    let (five, six) = (asks(b"5"), asks(b"6"));
    let ran = world.engine.run(&five, async |_| {
        let other = world.engine.run(&six, async |_| panic!("it is another thing"));
        assert_eq!(other.await?, Ran::Mismatch);
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn a_passing_failure_backs_off_and_is_tried_again() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun).on_failure(back_off(10 * SECOND)));
    let ran = world.engine.run(&operation, async |_| Err(HandlerError::retryable("no luck")));
    assert_eq!(ran.await.unwrap(), Ran::Failed(Outcome::bytes("no luck")));

    let ran = world.engine.run(&operation, async |_| panic!("its back-off is running"));
    let Ran::Busy(busy) = ran.await.unwrap() else { panic!("it must be busy") };
    assert_eq!(busy.why, BusyWhy::BackOff);
    assert!(busy.left >= 5 * SECOND && busy.left <= 10 * SECOND, "{busy:?}");

    pass(busy.left).await;
    let ran = world.engine.run(&operation, async |context| {
        assert_eq!(context.attempt(), 2);
        assert!(context.fence() > busy.fence);
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn attempts_are_numbered_and_the_last_failure_is_replayed() {
    let world = World::new();
    let rules = policy(OnLapsed::Rerun).on_failure(back_off(SECOND)).max_attempts(attempts(3));
    let operation = operation(rules);
    for attempt in 1..=3 {
        let ran = world
            .engine
            .run(&operation, async |context| Err(HandlerError::retryable(context.attempt())));
        let failure = Outcome::bytes(attempt.to_string());
        assert_eq!(ran.await.unwrap(), Ran::Failed(failure));
        pass(SECOND).await;
    }
    for _ in 0..2 {
        let ran = world.engine.run(&operation, async |_| panic!("three attempts are enough"));
        assert_eq!(ran.await.unwrap(), Ran::FailedBefore(Outcome::bytes("3")));
        pass(60 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_replayed() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun));
    let ran = world.engine.run(&operation, async |_| Err(HandlerError::permanent("never")));
    assert_eq!(ran.await.unwrap(), Ran::Failed(Outcome::bytes("never")));
    let ran = world.engine.run(&operation, async |_| panic!("it failed for good"));
    assert_eq!(ran.await.unwrap(), Ran::FailedBefore(Outcome::bytes("never")));
    assert_eq!(world.state(&operation).await, StateName::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_failure_frees_the_key_where_the_policy_says_so() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold).on_failure(OnFailure::Release));
    let ran = world.engine.run(&operation, async |_| Err(HandlerError::retryable("no luck")));
    assert_eq!(ran.await.unwrap(), Ran::Failed(Outcome::bytes("no luck")));
    assert_eq!(world.state(&operation).await, StateName::Absent);
    let ran = world.engine.run(&operation, async |context| {
        assert_eq!(context.attempt(), 1, "a free key begins anew");
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_replayed_where_the_policy_says_so() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun).on_failure(OnFailure::Replay));
    let ran = world.engine.run(&operation, async |_| Err(HandlerError::retryable("no luck")));
    assert_eq!(ran.await.unwrap(), Ran::Failed(Outcome::bytes("no luck")));
    let ran = world.engine.run(&operation, async |_| panic!("the failure is stored"));
    assert_eq!(ran.await.unwrap(), Ran::FailedBefore(Outcome::bytes("no luck")));
}

#[tokio::test(start_paused = true)]
async fn an_error_nobody_classified_is_tried_again_where_a_repetition_is_accepted() {
    for on_lapsed in [OnLapsed::Rerun, OnLapsed::Resume] {
        let world = World::new();
        let operation = operation(policy(on_lapsed));
        let ran = world.engine.run(&operation, async |_| {
            let number: u32 = "seven".parse()?;
            Ok(Outcome::bytes(number.to_string()))
        });
        let Ran::Failed(failure) = ran.await.unwrap() else { panic!("it must fail") };
        assert_eq!(failure.body(), Some(&b"invalid digit found in string"[..]));
        assert_eq!(world.state(&operation).await, StateName::Failed);
        pass(60 * SECOND).await;
        let ran = world.engine.run(&operation, async |_| Ok(done()));
        assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
    }
}

/// What a client says whose call to the bank was not answered in time.
fn no_answer() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "the bank did not answer")
}

#[tokio::test(start_paused = true)]
async fn an_error_nobody_classified_is_unknown_under_hold_and_does_not_run_again() {
    let world = World::new();
    let count = Count::default();
    let held = operation(policy(OnLapsed::Hold).on_failure(back_off(SECOND)));
    for round in 0..3 {
        let ran = world.engine.run(&held, async |_| {
            count.add();
            Err(no_answer())?
        });
        match (round, ran.await.unwrap()) {
            (0, Ran::Unclassified(error)) => {
                assert_eq!(error, Outcome::bytes("the bank did not answer"));
            }
            (1.., Ran::Unknown(unknown)) => assert_eq!(unknown.reason, UnknownReason::Reported),
            (_, other) => panic!("round {round}: {other:?}"),
        }
        pass(2 * SECOND).await;
    }
    assert_eq!(count.get(), 1, "the first call may have been charged");
    assert_eq!(world.state(&held).await, StateName::Unknown);
}

#[tokio::test(start_paused = true)]
async fn whoever_brings_no_policy_gets_the_one_that_never_runs_twice() {
    assert_eq!(Policy::default().on_lapsed(), OnLapsed::Hold);
    let world = World::new();
    let plain = Operation::without_fingerprint(Scope::global(), Key::client("order-17").unwrap());
    let ran = world.engine.run(&plain, async |_| Err(no_answer())?).await;
    assert!(matches!(ran, Ok(Ran::Unclassified(_))));
    assert_eq!(world.state(&plain).await, StateName::Unknown);
}

#[tokio::test(start_paused = true)]
async fn an_error_means_what_its_author_says_it_means() {
    let failed = || Ran::Failed(Outcome::bytes("the bank did not answer"));
    let abandoned = Ran::Abandoned(UnknownReason::Reported);
    let error = || Err::<Outcome, _>(no_answer());
    for (said, expected, state) in [
        (error().retryable(), failed(), StateName::Failed),
        (error().permanent(), failed(), StateName::Failed),
        (error().not_executed(), Ran::Released, StateName::Absent),
        (error().unknown(), abandoned, StateName::Unknown),
    ] {
        let world = World::new();
        let held = operation(policy(OnLapsed::Hold));
        assert_eq!(world.engine.run(&held, async |_| said).await.unwrap(), expected);
        assert_eq!(world.state(&held).await, state);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_did_nothing_frees_the_key() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let ran = world.engine.run(&operation, async |_| Err(HandlerError::NotExecuted));
    assert_eq!(ran.await.unwrap(), Ran::Released);
    assert_eq!(world.state(&operation).await, StateName::Absent);
    let ran = world.engine.run(&operation, async |_| Ok(done()));
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_did_nothing_on_a_later_attempt_forgets_none_before_it() {
    let world = World::new();
    let rules = policy(OnLapsed::Rerun).on_failure(back_off(SECOND)).max_attempts(attempts(2));
    let operation = operation(rules);
    let ran = world.engine.run(&operation, async |_| Err(HandlerError::retryable("first"))).await;
    assert!(matches!(ran, Ok(Ran::Failed(_))));
    pass(SECOND).await;
    for _ in 0..3 {
        let ran = world.engine.run(&operation, async |context| {
            assert_eq!(context.attempt(), 2);
            Err(HandlerError::NotExecuted)
        });
        assert_eq!(ran.await.unwrap(), Ran::Released);
        assert_eq!(world.engine.peek(&operation).await.unwrap(), None, "at once");
    }
    let ran = world.engine.run(&operation, async |_| Err(HandlerError::retryable("last"))).await;
    assert!(matches!(ran, Ok(Ran::Failed(_))));
    let ran = world.engine.run(&operation, async |_| panic!("two attempts are enough"));
    assert_eq!(ran.await.unwrap(), Ran::FailedBefore(Outcome::bytes("last")));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_know_leaves_it_unknown_under_hold() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    let ran = world.engine.run(&operation, async |_| Err(HandlerError::Unknown)).await;
    assert_eq!(ran.unwrap(), Ran::Abandoned(UnknownReason::Reported));
    let ran = world.engine.run(&operation, async |_| panic!("nobody may run it")).await.unwrap();
    let Ran::Unknown(unknown) = ran else { panic!("it must be unknown, not {ran:?}") };
    assert_eq!((unknown.reason, unknown.since), (UnknownReason::Reported, START));
    let peeked = world.engine.peek(&operation).await.unwrap();
    assert_eq!(peeked, Some(Existing::Unknown(unknown)));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_know_is_run_again_under_rerun() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun));
    let ran = world.engine.run(&operation, async |_| Err(HandlerError::Unknown)).await;
    assert_eq!(ran.unwrap(), Ran::Abandoned(UnknownReason::Reported));
    assert_eq!(world.engine.peek(&operation).await.unwrap(), None, "it can be claimed at once");
    let ran = world.engine.run(&operation, async |context| {
        assert_eq!(context.attempt(), 2);
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_replayed_until_its_retention_ends() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun).retention(100 * SECOND));
    let run = async || world.engine.run(&operation, async |_| Ok(done())).await.unwrap();
    assert_eq!(run().await, Ran::Executed(done()));
    pass(Duration::from_millis(99_999)).await;
    assert_eq!(run().await, Ran::Replayed(done()));
    pass(Duration::from_millis(1)).await;
    assert_eq!(run().await, Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn late_arrivals_are_refused_where_the_policy_says_so() {
    let world = World::new();
    let rules = policy(OnLapsed::Rerun)
        .retention(100 * SECOND)
        .after_retention(AfterRetention::Refuse(50 * SECOND));
    let operation = operation(rules);
    let run = async || world.engine.run(&operation, async |_| Ok(done())).await.unwrap();
    assert_eq!(run().await, Ran::Executed(done()));
    pass(100 * SECOND).await;
    assert_eq!(run().await, Ran::Expired(START.after(100 * SECOND)));
    pass(50 * SECOND).await;
    assert_eq!(run().await, Ran::Executed(done()));
}
