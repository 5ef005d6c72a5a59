//! Every trouble at every step and every compensation, on every store: all or nothing, and nothing
//! twice.

use justonce_core::{Engine, HandlerError, Key, OnLapsed, Operation, Outcome, Policy, Scope};
use justonce_saga::Phases;
use justonce_testkit::sagas::{Act, CallReply, Case, Downstream, rehearse};

use crate::ground::{Ground, on_every_store};
use crate::orders::{STEPS, ask, beside, in_order};

async fn a_saga_in_order(ground: Ground) {
    let run = async |engine: Engine, name: String, downstream: Downstream| {
        ask(&in_order(&downstream), &engine, &name).await
    };
    let cases = Case::all(&STEPS);
    assert_eq!(cases.len(), 38);
    let store = ground.store.clone();
    rehearse(store, &ground.clock, &STEPS, cases, run).await.unwrap();
}

on_every_store!(a_saga_in_order:
    a_saga_on_memory a_saga_on_embedded a_saga_on_redis a_saga_on_postgres);

async fn a_saga_with_steps_beside_each_other(ground: Ground) {
    let run = async |engine: Engine, name: String, downstream: Downstream| {
        ask(&beside(&downstream), &engine, &name).await
    };
    let store = ground.store.clone();
    rehearse(store, &ground.clock, &STEPS, Case::all(&STEPS), run).await.unwrap();
}

on_every_store!(a_saga_with_steps_beside_each_other:
    steps_beside_on_memory steps_beside_on_embedded steps_beside_on_redis steps_beside_on_postgres);

/// Phases have no way back: whatever passes must end well.
async fn phases(ground: Ground) {
    let run = async |engine: Engine, name: String, downstream: Downstream| {
        let policy = Policy::builder().on_lapsed(OnLapsed::Resume).build().unwrap();
        let operation =
            Operation::without_fingerprint(Scope::global(), Key::client(&name).unwrap())
                .with_policy(policy);
        let phases = Phases::new(STEPS).unwrap();
        let ran = phases.run(&engine, &operation, async |mut run| {
            for (number, step) in STEPS.into_iter().enumerate() {
                let told: usize = run
                    .phase(step, async |key| match downstream.step(step, &key).await {
                        CallReply::Ok => Ok(number),
                        CallReply::Refused | CallReply::NoAnswer => Err(HandlerError::Unknown),
                    })
                    .await?;
                assert_eq!(told, number, "the saved result of another phase");
            }
            Ok(Outcome::bytes("done"))
        });
        ran.await.unwrap().outcome().map(|_| true)
    };
    let passes = |case: &Case| case.act == Act::Step && case.trouble.is_passing();
    let cases = Case::all(&STEPS).into_iter().filter(passes);
    rehearse(ground.store.clone(), &ground.clock, &STEPS, cases, run).await.unwrap();
}

on_every_store!(phases:
    phases_on_memory phases_on_embedded phases_on_redis phases_on_postgres);
