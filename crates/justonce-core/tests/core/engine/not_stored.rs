//! Steps in the background that could not be stored: whoever observes the engine is told.

use std::sync::{Arc, Mutex};

use justonce_core::engine::{Begun, NotStored, NotStoredObserver, NotStoredWhy};
use justonce_core::store::{Fault, Faulty};
use justonce_core::{Engine, HeldClaim, Lost, OnLapsed, Operation, Outcome};

use crate::common::handlers::done;
use crate::common::world::{LEASE_CAP, SECOND, World, breathe, named, pass, policy, seeded};

/// What was observed: the step, and why it is not stored.
#[derive(Clone, Debug, Default)]
struct Observed(Arc<Mutex<Vec<(&'static str, String)>>>);

impl Observed {
    fn take(&self) -> Vec<(&'static str, String)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl NotStoredObserver for Observed {
    fn not_stored(&self, step: &NotStored<'_>) {
        let why = match step.why {
            NotStoredWhy::Failed(_) => "failed".to_owned(),
            NotStoredWhy::Lost(lost) => format!("{lost:?}"),
            _ => "stopped".to_owned(),
        };
        self.0.lock().unwrap().push((step.step, why));
    }
}

fn observed(world: &World) -> (Engine, Observed) {
    let observed = Observed::default();
    let store = Faulty::new(world.store.clone(), world.faults.clone());
    let engine =
        seeded(Engine::builder(store), 3).not_stored_observer(Arc::new(observed.clone())).build();
    (engine, observed)
}

async fn claim(engine: &Engine, operation: &Operation) -> HeldClaim {
    match engine.begin(operation).await {
        Ok(Begun::Claimed(claim)) => claim,
        other => panic!("it must be claimed, not {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_callers_leave_and_the_store_does_not_take_is_observed() {
    let world = World::new();
    let (engine, observed) = observed(&world);
    for step in ["abandon", "complete", "fail"] {
        world.faults.always(step, Fault::NotApplied);
    }
    drop(claim(&engine, &named("left", policy(OnLapsed::Rerun))).await);
    breathe().await;
    assert_eq!(observed.take(), [("abandon", "failed".to_owned())]);

    for step in ["complete", "fail"] {
        let mut held = claim(&engine, &named(step, policy(OnLapsed::Hold))).await;
        let said = match step {
            "complete" => held.complete(done()).await,
            _ => held.fail(Outcome::empty()).await,
        };
        assert!(said.is_err());
        drop(held);
        pass(LEASE_CAP / 2).await;
        assert_eq!(observed.take(), [], "it is tried further");
        pass(LEASE_CAP).await;
        assert_eq!(observed.take(), [(step, "failed".to_owned())]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_whose_claim_was_lost_meanwhile_is_observed() {
    let world = World::new();
    let (engine, observed) = observed(&world);
    let operation = named("taken", policy(OnLapsed::Rerun));
    let mut held = claim(&engine, &operation).await;
    // Cut off from the store until another owner has taken over.
    world.faults.always("complete", Fault::NotApplied);
    world.faults.always("renew", Fault::NotApplied);
    assert!(held.complete(done()).await.is_err());
    drop(held);
    pass(40 * SECOND).await;
    let other = world.second();
    drop(claim(&other.engine, &operation).await);
    world.faults.heal();
    pass(40 * SECOND).await;
    assert_eq!(observed.take(), [("complete", format!("{:?}", Lost::Superseded))]);
}

#[tokio::test(start_paused = true)]
async fn what_is_stored_in_the_background_is_not_observed() {
    let world = World::new();
    let (engine, observed) = observed(&world);
    world.faults.next("complete", [Fault::LostReply; 3]);
    let mut held = claim(&engine, &named("late", policy(OnLapsed::Rerun))).await;
    assert!(held.complete(done()).await.is_err());
    drop(held);
    drop(claim(&engine, &named("left", policy(OnLapsed::Rerun))).await);
    pass(40 * SECOND).await;
    assert_eq!(observed.take(), []);
}
