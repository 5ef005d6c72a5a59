//! Typed results are stored as JSON and replayed as values, and values are handed through.

use std::collections::HashMap;
use std::future::pending;
use std::time::Duration;

use justonce_core::engine::{Begun, RunJsonError};
use justonce_core::store::Fault;
use justonce_core::{HandlerError, OnLapsed, Outcome, Ran, StateName, UnknownReason};
use serde::{Deserialize, Serialize};

use crate::common::world::{World, operation, policy};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    number: u64,
}

#[tokio::test(start_paused = true)]
async fn a_typed_result_is_executed_once_and_replayed_as_a_value() {
    let world = World::new();
    let order = operation(policy(OnLapsed::Hold));
    let first = world.engine.run_json(&order, "receipt/1", async |_| Ok(Receipt { number: 17 }));
    assert_eq!(first.await.unwrap(), Ran::Executed(Receipt { number: 17 }));
    let again = world.engine.run_json(&order, "receipt/1", async |_| panic!("it runs once"));
    assert_eq!(again.await.unwrap(), Ran::Replayed(Receipt { number: 17 }));
}

#[tokio::test(start_paused = true)]
async fn a_stored_result_that_no_longer_fits_is_a_clear_error_and_nothing_runs() {
    let world = World::new();
    let order = operation(policy(OnLapsed::Hold));
    let first = world.engine.run_json(&order, "receipt/1", async |_| Ok(Receipt { number: 17 }));
    first.await.unwrap();
    let other = world.engine.run_json::<Receipt, _, _>(&order, "receipt/2", async |_| panic!());
    let error = other.await.unwrap_err();
    assert!(matches!(&error, RunJsonError::Unreadable { expected, stored, .. }
        if expected == "receipt/2" && stored.as_deref() == Some("receipt/1")));
    let text = error.to_string();
    assert!(text.contains("(receipt/1) cannot be read as receipt/2"), "{text}");
    // The same name for a type that reads something else.
    let other = world.engine.run_json::<Vec<u8>, _, _>(&order, "receipt/1", async |_| panic!());
    let error = other.await.unwrap_err();
    assert!(matches!(error, RunJsonError::Unreadable { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_outcome_of_a_plain_run_is_no_typed_result() {
    let world = World::new();
    let order = operation(policy(OnLapsed::Hold));
    world.engine.run(&order, async |_| Ok(Outcome::bytes("17"))).await.unwrap();
    let typed = world.engine.run_json::<u64, _, _>(&order, "number/1", async |_| panic!());
    let error = typed.await.unwrap_err();
    assert!(matches!(error, RunJsonError::Unreadable { stored: None, .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_written_makes_the_operation_unknown_under_hold() {
    let world = World::new();
    let order = operation(policy(OnLapsed::Hold));
    // JSON has no object whose keys are lists.
    let handler = async |_| Ok(HashMap::from([(vec![1], 1)]));
    let error = world.engine.run_json(&order, "map/1", handler).await.unwrap_err();
    assert!(matches!(error, RunJsonError::Unwritable(_)), "{error:?}");
    assert_eq!(world.state(&order).await, StateName::Unknown);
    let stored = world.engine.store().get(&order.id()).await.unwrap().unwrap();
    let notes = format!("{:?}", stored.timeline);
    assert!(notes.contains("cannot be stored as JSON"), "operators are told why: {notes}");
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_too_large_is_done_and_only_its_first_caller_has_it() {
    let world = World::new();
    let order = operation(policy(OnLapsed::Hold));
    let large = "x".repeat(justonce_core::MAX_BODY_BYTES);
    let first = world.engine.run_json(&order, "text/1", async |_| Ok(large.clone())).await;
    assert_eq!(first.unwrap(), Ran::Executed(large));
    let again = world.engine.run_json::<String, _, _>(&order, "text/1", async |_| panic!()).await;
    let error = again.unwrap_err().to_string();
    assert!(error.contains("too large to store"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_type_whose_name_cannot_be_stored_is_refused_before_anything_runs() {
    let world = World::new();
    let order = operation(policy(OnLapsed::Hold));
    let name = "n".repeat(justonce_core::MAX_HEADER_BYTES);
    let refused = world.engine.run_json::<u64, _, _>(&order, &name, async |_| panic!()).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, RunJsonError::TypeName(_)), "{error:?}");
    assert_eq!(world.state(&order).await, StateName::Absent);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_written_gives_way_to_that_of_another_owner() {
    // JSON has no object whose keys are lists, but for an empty one.
    type Empty = HashMap<Vec<i32>, i32>;
    let world = World::new();
    let order = operation(policy(OnLapsed::Rerun));
    let other = world.second();
    let handler = async |_| {
        world.faults.always("renew", Fault::LostRequest);
        crate::common::world::pass(20 * crate::common::world::LEASE).await;
        let taken = other.engine.run_json(&order, "receipt/1", async |_| Ok(Empty::new())).await;
        assert_eq!(taken.unwrap(), Ran::Executed(Empty::new()));
        Ok(HashMap::from([(vec![1], 1)]))
    };
    let ran = world.engine.run_json(&order, "receipt/1", handler).await.unwrap();
    assert_eq!(ran, Ran::Superseded(Some(Empty::new())));
}

#[tokio::test(start_paused = true)]
async fn failures_of_a_typed_run_are_those_of_every_run() {
    let world = World::new();
    let order = operation(policy(OnLapsed::Hold));
    let handler = async |_| Err::<Receipt, _>(HandlerError::permanent("declined"));
    let ran = world.engine.run_json(&order, "receipt/1", handler).await.unwrap();
    assert_eq!(ran, Ran::Failed(Outcome::bytes("declined")));
    let again = world.engine.run_json(&order, "receipt/1", async |_| panic!("it is over"));
    let again: Ran<Receipt> = again.await.unwrap();
    assert_eq!(again, Ran::FailedBefore(Outcome::bytes("declined")));
}

#[tokio::test(start_paused = true)]
async fn a_value_is_handed_through_whatever_the_result_is_and_none_after_a_timeout() {
    let world = World::new();
    let results = [
        Ok(Outcome::empty()),
        Err(HandlerError::NotExecuted),
        Err(HandlerError::Unknown),
        Err(HandlerError::permanent("no")),
    ];
    for (number, result) in results.into_iter().enumerate() {
        let order = crate::common::world::named(&number.to_string(), policy(OnLapsed::Rerun));
        let Begun::Claimed(claim) = world.engine.begin(&order).await.unwrap() else { panic!() };
        let (ran, value) =
            world.engine.execute_with(&order, claim, async |_| (result, number)).await;
        assert_eq!(value, Some(number));
        ran.unwrap();
    }
    let order = operation(policy(OnLapsed::Rerun)).with_handler_timeout(Duration::from_secs(1));
    let Begun::Claimed(claim) = world.engine.begin(&order).await.unwrap() else { panic!() };
    let hangs = async |_| pending::<(Result<Outcome, HandlerError>, u8)>().await;
    let (ran, value) = world.engine.execute_with(&order, claim, hangs).await;
    assert_eq!(ran.unwrap(), Ran::Abandoned(UnknownReason::TimedOut));
    assert_eq!(value, None);
}
