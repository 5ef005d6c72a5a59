//! Owners die everywhere; two nodes with completers finish what they left, and nothing twice.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use justonce_core::store::ListQuery;
use justonce_core::{
    Engine, HandlerError, Key, OnLapsed, Operation, Outcome, Policy, Scope, StateName,
};
use justonce_saga::{Call, Completer, CompleterSettings, Phases, Round, Saga, SagaStep};
use justonce_testkit::sagas::{CallReply, Case, Downstream, Mortal};

use crate::ground::{Ground, on_every_store};
use crate::orders::{STEPS, ask, in_order, run};

const AT_ONCE: CompleterSettings = CompleterSettings {
    every: Duration::from_millis(10),
    unchanged_for: Duration::ZERO,
    page: 3,
    at_once: 4,
    drive_timeout: Duration::from_secs(60),
    retry_stuck: Some(Duration::ZERO),
    park_after: 1000,
};
/// How many rounds two nodes may take.
const ROUNDS: usize = 200;

async fn unfinished(ground: &Ground) -> usize {
    let query = ListQuery { state: Some(StateName::InProgress), ..ListQuery::default() };
    ground.store.list(&query).await.unwrap().records.len()
}

/// Each saga has its own trouble, and its first owner dies after it at the latest.
async fn two_nodes_finish_what_others_left(ground: Ground) {
    let downstreams: Vec<Downstream> = Case::all(&STEPS).into_iter().map(Downstream::new).collect();
    for (number, downstream) in downstreams.iter().enumerate() {
        let alive = downstream.next_life();
        let engine = Engine::builder(Mortal::new(ground.store.clone(), alive))
            .background(tokio::runtime::Handle::current())
            .build();
        let (saga, name) = (in_order(downstream), format!("order-{number}"));
        tokio::select! {
            _ = run(&saga, &engine, &name) => {}
            () = downstream.died() => {}
        }
        let _ = downstream.next_life();
    }
    ground.much_later();
    assert!(unfinished(&ground).await >= 6, "nobody died");
    // A saga is told by its name; here each has a downstream of its own, found by its key.
    let all: Arc<Vec<Downstream>> = Arc::new(downstreams);
    let nodes = [(); 2].map(|()| {
        let completer = Completer::new(&ground.engine(), AT_ONCE);
        completer.with(ByKey(Arc::clone(&all))).unwrap()
    });
    for _ in 0..ROUNDS {
        let (one, two) = tokio::join!(nodes[0].round(), nodes[1].round());
        assert_eq!((one.troubles, two.troubles), (vec![], vec![]));
        if unfinished(&ground).await == 0 {
            break;
        }
        ground.much_later();
    }
    assert_eq!(unfinished(&ground).await, 0);
    for (number, downstream) in all.iter().enumerate() {
        let (saga, name) = (in_order(downstream), format!("order-{number}"));
        let done = ask(&saga, &ground.engine(), &name).await.expect("it has ended");
        assert_eq!(downstream.wrong(&STEPS, done), None, "order-{number}");
    }
}

on_every_store!(two_nodes_finish_what_others_left:
    two_nodes_on_memory two_nodes_on_embedded two_nodes_on_redis two_nodes_on_postgres);

/// A driver that finds the downstream of each saga by its key.
struct ByKey(Arc<Vec<Downstream>>);

impl justonce_saga::Driver for ByKey {
    fn name(&self) -> &str {
        "order"
    }

    fn fits(&self, _: &justonce_core::Checkpoint) -> Result<(), String> {
        Ok(())
    }

    fn drive(
        &self,
        engine: &Engine,
        operation: Operation,
    ) -> futures_util::future::BoxFuture<'static, justonce_saga::DriveEnd> {
        let number: usize = operation.key().as_str()["order-".len()..].parse().unwrap();
        in_order(&self.0[number]).drive(engine, operation)
    }
}

#[tokio::test]
async fn phases_whose_owner_died_are_finished_without_the_caller() {
    let ground = Ground::memory();
    let policy = Policy::builder().on_lapsed(OnLapsed::Resume).build().unwrap();
    let scope = Scope::builder().operation("signup").build().unwrap();
    let operation =
        Operation::without_fingerprint(scope, Key::client("ada").unwrap()).with_policy(policy);
    let phases = Phases::new(["welcome", "bill"]).unwrap();
    let operation = phases.asked(operation, &"ada@example.org").unwrap();
    let engine = Engine::new(Mortal::new(ground.store.clone(), Arc::new(AtomicBool::new(true))));
    let ran = phases.run(&engine, &operation, async |mut run| {
        let _: u32 = run.phase("welcome", async |_| Ok(1)).await?;
        // It fails for now: the retry is due after the back-off.
        Err(HandlerError::retryable("the bank is away"))
    });
    ran.await.unwrap();
    ground.much_later();
    let completer = Completer::new(&ground.engine(), AT_ONCE)
        .with_phases("signup", &phases, async |mut run| {
            let asked: String = run.input()?;
            let _: u32 = run.phase("welcome", async |_| panic!("it is done")).await?;
            let _: u32 = run.phase("bill", async |_| Ok(2)).await?;
            Ok(Outcome::bytes(asked))
        })
        .unwrap();
    let mut ended = 0;
    for _ in 0..4 {
        ended += completer.round().await.ended;
    }
    assert_eq!(ended, 1);
    let ran = phases.run(&ground.engine(), &operation, async |_| panic!("it is done")).await;
    assert_eq!(ran.unwrap().outcome(), Some(&Outcome::bytes("ada@example.org")));
}

#[tokio::test]
async fn the_living_are_left_alone() {
    let ground = Ground::memory();
    let case = Case::all(&STEPS).remove(0);
    let downstream = Downstream::new(case);
    let engine = ground.engine();
    let operation = {
        let saga = in_order(&downstream);
        let order = crate::orders::Order::default();
        saga.operation(Scope::builder(), Key::client("order-0").unwrap(), &order).unwrap()
    };
    let begun = engine.begin(&operation).await.unwrap();
    let completer = Completer::new(&ground.engine(), AT_ONCE);
    let completer = completer.with(in_order(&downstream)).unwrap();
    let mut total = Round::default();
    for _ in 0..3 {
        let round = completer.round().await;
        total.left += round.left;
        assert_eq!((round.ended, round.not_yet), (0, 0));
    }
    assert!(total.left >= 1, "it was not even looked at");
    drop(begun);
    let told = downstream.step("reserve", &Key::client("x").unwrap()).await;
    assert_eq!(told, CallReply::Ok, "nothing else called it");
}

#[tokio::test]
async fn a_step_that_panics_and_a_plan_that_changed_hold_up_no_other() {
    let ground = Ground::memory();
    let saga = |name: &str, step: &str, panics: bool| {
        let run =
            move |_: Call<u64>| async move { if panics { panic!("on purpose") } else { Ok(()) } };
        Saga::builder(name).step(SagaStep::new(step, run)).build().unwrap()
    };
    for (number, name) in ["panics", "changed", "fine"].into_iter().enumerate() {
        let key = Key::client(format!("order-{number}")).unwrap();
        let operation = saga(name, "old", false).operation(Scope::builder(), key, &17).unwrap();
        // Claimed, and dropped at once: its owner has died before the first step.
        drop(ground.engine().begin(&operation).await.unwrap());
    }
    ground.much_later();
    let completer = Completer::new(&ground.engine(), AT_ONCE)
        .with(saga("panics", "old", true))
        .unwrap()
        .with(saga("changed", "new", false))
        .unwrap()
        .with(saga("fine", "old", false))
        .unwrap();
    let (mut ended, mut troubles) = (0, String::new());
    for _ in 0..3 {
        let round = completer.round().await;
        ended += round.ended;
        troubles.push_str(&round.troubles.join("\n"));
        ground.much_later();
    }
    assert_eq!(ended, 1);
    assert!(troubles.contains("panicked") && troubles.contains("\"changed\" (new!)"), "{troubles}");
    let query = ListQuery { state: Some(StateName::InProgress), ..ListQuery::default() };
    let left = ground.store.list(&query).await.unwrap().records;
    assert_eq!(left.len(), 2, "nothing is lost");
    let changed = left.iter().find(|record| record.attempt == 1);
    assert!(changed.is_some(), "what does not fit is not claimed: {left:?}");
}

/// Drives nothing: what it finds was written by another release.
struct Misfit;

impl justonce_saga::Driver for Misfit {
    fn name(&self) -> &str {
        "order"
    }

    fn fits(&self, _: &justonce_core::Checkpoint) -> Result<(), String> {
        Err("another release began it".into())
    }

    fn drive(
        &self,
        _: &Engine,
        _: Operation,
    ) -> futures_util::future::BoxFuture<'static, justonce_saga::DriveEnd> {
        panic!("it does not fit")
    }
}

#[tokio::test]
async fn in_the_background_it_tells_what_it_did_and_what_troubles_it() {
    let ground = Ground::memory();
    let downstream = Downstream::new(Case::all(&STEPS).remove(0));
    let saga = in_order(&downstream);
    let order = crate::orders::Order::default();
    let operation =
        saga.operation(Scope::builder(), Key::client("order-0").unwrap(), &order).unwrap();
    // Given up by its owner, who has done nothing.
    drop(ground.engine().begin(&operation).await.unwrap());
    ground.much_later();
    let told = async |completer: Completer, enough: fn(&Round) -> bool| {
        let (sender, mut rounds) = tokio::sync::mpsc::unbounded_channel();
        let _completing = completer.start(move |round| drop(sender.send(round)));
        loop {
            let round = rounds.recv().await.expect("it works until it is dropped");
            if enough(&round) {
                return round;
            }
        }
    };
    let misfit = Completer::new(&ground.engine(), AT_ONCE).with(Misfit).unwrap();
    let troubled = told(misfit, |round| !round.troubles.is_empty()).await;
    assert!(troubled.troubles[0].contains("another release"), "{troubled:?}");
    let fit = Completer::new(&ground.engine(), AT_ONCE).with(saga).unwrap();
    assert_eq!(told(fit, |round| round.ended > 0).await.ended, 1);
    assert_eq!(unfinished(&ground).await, 0);
}
