//! The sagas of the tests.

use std::time::Duration;

use justonce_core::{BackOff, Engine, Key, Scope};
use justonce_saga::{Call, Saga, SagaEnd, SagaError, SagaRan, SagaStep, StepError, Tries};
use justonce_testkit::sagas::{CallReply, Downstream};
use serde::{Deserialize, Serialize};

/// What an order knows: which steps have told it that they are done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) item: String,
    pub(crate) done: Vec<String>,
}

pub(crate) const STEPS: [&str; 3] = ["reserve", "charge", "ship"];

const QUICK: Tries = Tries {
    most: 2,
    back_off: BackOff { first: Duration::from_millis(1), max: Duration::from_millis(2) },
};

pub(crate) fn heard(told: CallReply) -> Result<(), StepError> {
    match told {
        CallReply::Ok => Ok(()),
        CallReply::Refused => Err(StepError::permanent("refused")),
        CallReply::NoAnswer => Err(StepError::passing("no answer")),
    }
}

/// A step that calls the downstream, and how it is undone there.
pub(crate) fn step(name: &'static str, downstream: &Downstream) -> SagaStep<Order> {
    let (there, back) = (downstream.clone(), downstream.clone());
    let run = move |call: Call<Order>| {
        let there = there.clone();
        async move {
            heard(there.step(name, call.key()).await)?;
            Ok(name.to_owned())
        }
    };
    let undo = move |call: Call<Order>| {
        let back = back.clone();
        async move { heard(back.undo(name, call.step_key(), call.key()).await) }
    };
    SagaStep::new(name, run)
        .saves(|order: &mut Order, name| order.done.push(name))
        .undo(undo)
        .tries(QUICK)
        .undo_tries(QUICK)
}

/// Reserve, then charge, then ship.
pub(crate) fn in_order(downstream: &Downstream) -> Saga<Order> {
    let steps = STEPS.map(|name| step(name, downstream)).into_iter();
    steps.fold(Saga::builder("order"), |saga, step| saga.step(step)).build().unwrap()
}

/// Reserve beside charge, then ship.
pub(crate) fn beside(downstream: &Downstream) -> Saga<Order> {
    let [reserve, charge, ship] = STEPS.map(|name| step(name, downstream));
    Saga::builder("order").step(reserve).beside(charge).step(ship).build().unwrap()
}

/// Runs the saga of this name; whether it is done or undone, if it has ended.
pub(crate) async fn ask(saga: &Saga<Order>, engine: &Engine, name: &str) -> Option<bool> {
    match run(saga, engine, name).await {
        SagaRan::Ended(end) | SagaRan::Replayed(end) => Some(matches!(end, SagaEnd::Done(_))),
        _ => None,
    }
}

pub(crate) async fn run(saga: &Saga<Order>, engine: &Engine, name: &str) -> SagaRan<Order> {
    let order = Order { item: name.to_owned(), done: Vec::new() };
    let key = Key::client(name).unwrap();
    let operation = saga.operation(Scope::builder().tenant("acme"), key, &order).unwrap();
    match saga.run(engine, &operation).await {
        Ok(ran) => ran,
        // The process has died: nothing that it says counts.
        Err(SagaError::Run(_)) => SagaRan::Unfinished,
        Err(error) => panic!("{error}"),
    }
}
