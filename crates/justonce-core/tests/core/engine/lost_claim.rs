//! A claim lost to another owner: the handler is dropped, and nothing it says counts any more.

use justonce_core::engine::{Begun, SaveError, Settlement};
use justonce_core::store::Fault;
use justonce_core::{
    HandlerError, Lost, NoteKind, OnLapsed, Operation, Outcome, Ran, RefusedStep, StateName,
};
use tokio::task::JoinHandle;

use crate::common::handlers::{Dropped, done};
use crate::common::world::{LEASE, SECOND, World, operation, pass, policy};

fn winner() -> Outcome {
    Outcome::bytes("by the winner")
}

/// A run that never ends by itself and whose renewals do not arrive.
fn cut_off(world: &World, operation: &Operation, dropped: &Dropped) -> JoinHandle<Ran> {
    world.faults.always("renew", Fault::LostRequest);
    let (engine, operation, guard) = (world.engine.clone(), operation.clone(), dropped.guard());
    tokio::spawn(async move {
        let ran = engine.run(&operation, async move |_| {
            let _guard = guard;
            std::future::pending().await
        });
        ran.await.unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn the_handler_is_dropped_and_hears_the_winners_outcome() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun));
    let dropped = Dropped::default();
    let loser = cut_off(&world, &operation, &dropped);
    pass(LEASE).await;
    let other = world.second();
    let ran = other.engine.run(&operation, async |context| {
        assert_eq!((context.attempt(), context.fence().get()), (2, 2));
        Ok(winner())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(winner()));
    assert!(!dropped.get(), "it cannot know yet");
    world.faults.heal();
    assert_eq!(loser.await.unwrap(), Ran::Superseded(Some(winner())));
    assert!(dropped.get());
    assert_eq!(world.engine.load().executing, 0);
}

#[tokio::test(start_paused = true)]
async fn the_handler_is_dropped_while_the_winner_still_runs() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun));
    let dropped = Dropped::default();
    let loser = cut_off(&world, &operation, &dropped);
    pass(LEASE).await;
    let other = world.second();
    let ran = other.engine.run(&operation, async |_| {
        world.faults.heal();
        pass(LEASE).await;
        assert!(dropped.get());
        Ok(winner())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(winner()));
    assert_eq!(loser.await.unwrap(), Ran::Superseded(None));
}

#[tokio::test(start_paused = true)]
async fn the_winners_failure_is_told_as_such() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun));
    let loser = cut_off(&world, &operation, &Dropped::default());
    pass(LEASE).await;
    let other = world.second();
    let ran = other.engine.run(&operation, async |_| Err(HandlerError::permanent("never")));
    assert_eq!(ran.await.unwrap(), Ran::Failed(Outcome::bytes("never")));
    world.faults.heal();
    assert_eq!(loser.await.unwrap(), Ran::FailedBefore(Outcome::bytes("never")));
}

#[tokio::test(start_paused = true)]
async fn a_late_complete_changes_nothing() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun));
    world.faults.always("renew", Fault::LostRequest);
    let other = world.second();
    let late = world.engine.run(&operation, async |_| {
        pass(LEASE).await;
        let ran = other.engine.run(&operation, async |_| Ok(winner())).await?;
        assert_eq!(ran, Ran::Executed(winner()));
        Ok(Outcome::bytes("too late"))
    });
    assert_eq!(late.await.unwrap(), Ran::Superseded(Some(winner())));
    let again = world.engine.run(&operation, async |_| panic!("it is done"));
    assert_eq!(again.await.unwrap(), Ran::Replayed(winner()));
    let stored = world.stored(&operation).await.unwrap();
    let refused = NoteKind::Refused(RefusedStep::Complete);
    let notes = stored.timeline.notes();
    assert!(notes.iter().any(|note| note.kind == refused && note.fence.get() == 1));
}

#[tokio::test(start_paused = true)]
async fn every_late_write_is_refused() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun));
    let Begun::Claimed(mut old) = world.engine.begin(&operation).await.unwrap() else {
        panic!("it must be claimed")
    };
    world.faults.always("renew", Fault::LostRequest);
    pass(LEASE).await;
    let other = world.second();
    let Begun::Claimed(mut new) = other.engine.begin(&operation).await.unwrap() else {
        panic!("it must be claimed again")
    };
    assert!(new.fence() > old.fence());
    let lost = Settlement::Lost(Lost::Superseded);
    let point = justonce_core::Checkpoint::new("late", "").unwrap();
    assert_eq!(old.save(point).await.unwrap(), lost);
    assert_eq!(old.release().await.unwrap(), lost);
    assert_eq!(old.fail(done()).await.unwrap(), lost);
    assert_eq!(old.fail_for_good(done()).await.unwrap(), lost);
    assert_eq!(old.complete(done()).await.unwrap(), lost);
    assert_eq!(world.state(&operation).await, StateName::InProgress);
    assert_eq!(new.complete(winner()).await.unwrap(), Settlement::Stored);
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_wait_for_the_loss_and_cannot_save_after_it() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Resume));
    world.faults.always("renew", Fault::LostRequest);
    let (engine, operation_of_loser) = (world.engine.clone(), operation.clone());
    let (tell, told) = tokio::sync::oneshot::channel();
    let loser = tokio::spawn(async move {
        let handler = async move |context: justonce_core::engine::Context| {
            let helper = context.clone();
            tokio::spawn(async move {
                helper.lost().await;
                let saved = helper.save("late", "").await;
                // The test may have failed already; then nobody listens.
                let _ = tell.send(matches!(saved, Err(SaveError::Lost(Lost::Superseded))));
            });
            std::future::pending().await
        };
        engine.run(&operation_of_loser, handler).await.unwrap()
    });
    pass(LEASE).await;
    let other = world.second();
    let ran = other.engine.run(&operation, async |_| {
        world.faults.heal();
        pass(SECOND * 5).await;
        Ok(winner())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(winner()));
    assert!(told.await.unwrap(), "the save after the loss must be refused");
    assert_eq!(loser.await.unwrap(), Ran::Superseded(None));
}
