//! Checkpoints: saved under a claim, handed over under `resume` only.

use justonce_core::engine::{Begun, Context, SaveError};
use justonce_core::memory::MemoryStore;
use justonce_core::store::{Fault, Records};
use justonce_core::{
    Action, Answer, Checkpoint, CheckpointError, HandlerError, Lost, MAX_CHECKPOINT_BYTES,
    MAX_CHECKPOINT_NAME_BYTES, ManualClock, OnLapsed, Operation, Owner, Ran, State, Step, Token,
    UnknownReason,
};

use crate::common::handlers::done;
use crate::common::world::{LEASE, World, attempts, breathe, operation, pass, policy};

/// The checkpoint in the record, whatever its state.
async fn saved(world: &World, operation: &Operation) -> Option<Checkpoint> {
    match &world.stored(operation).await?.entry.record()?.state {
        State::InProgress(claim) => claim.checkpoint.clone(),
        State::Unknown(unknown) => unknown.checkpoint.clone(),
        State::Completed(_) | State::Failed(_) => None,
    }
}

/// Runs a handler that saves two points and then gives up without knowing.
async fn give_up_half_way(world: &World, operation: &Operation) {
    let ran = world.engine.run(operation, async |context| {
        assert_eq!(context.checkpoint(), None);
        context.save("reserved", "1").await?;
        context.save("charged", "2").await?;
        Err(HandlerError::Unknown)
    });
    assert!(ran.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_last_point_is_kept_while_the_handler_runs() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Resume));
    let ran = world.engine.run(&operation, async |context| {
        assert_eq!(saved(&world, &operation).await, None);
        for (number, point) in [(1, "reserved"), (2, "charged")] {
            context.save(point, "data").await?;
            let expected = Checkpoint::new(point, "data").unwrap().numbered(number);
            assert_eq!(saved(&world, &operation).await, Some(expected));
        }
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn resume_hands_the_last_point_over() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Resume));
    give_up_half_way(&world, &operation).await;
    let ran = world
        .second()
        .engine
        .run(&operation, async |context| {
            let point = context.checkpoint().unwrap();
            assert_eq!((point.name(), &point.data()[..]), ("charged", &b"2"[..]));
            Ok(done())
        })
        .await;
    assert_eq!(ran.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn resume_hands_the_last_point_over_after_a_lapsed_lease() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Resume));
    world.faults.always("renew", Fault::LostRequest);
    let Begun::Claimed(claim) = world.engine.begin(&operation).await.unwrap() else {
        panic!("it must be claimed")
    };
    let point = Checkpoint::new("charged", "2").unwrap();
    assert!(claim.save(point.clone()).await.is_ok());
    pass(LEASE).await;
    let Ok(Begun::Claimed(next)) = world.second().engine.begin(&operation).await else {
        panic!("it must be claimed again")
    };
    assert_eq!((next.checkpoint(), next.attempt()), (Some(&point), 2));
}

#[tokio::test(start_paused = true)]
async fn resume_hands_the_last_point_over_after_a_failure() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Resume));
    let ran = world.engine.run(&operation, async |context| {
        context.save("charged", "2").await?;
        Err(HandlerError::retryable("no luck"))
    });
    assert!(matches!(ran.await, Ok(Ran::Failed(_))));
    pass(LEASE).await;
    let ran = world.engine.run(&operation, async |context| {
        assert_eq!(context.checkpoint().map(Checkpoint::name), Some("charged"));
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn rerun_starts_from_the_beginning() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Rerun));
    give_up_half_way(&world, &operation).await;
    let ran = world.engine.run(&operation, async |context| {
        assert_eq!((context.attempt(), context.checkpoint()), (2, None));
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn hold_keeps_the_last_point_for_whoever_resolves_it() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Hold));
    give_up_half_way(&world, &operation).await;
    let kept = saved(&world, &operation).await.unwrap();
    assert_eq!((kept.name(), &kept.data()[..]), ("charged", &b"2"[..]));
}

#[tokio::test(start_paused = true)]
async fn resume_stops_after_the_last_attempt() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Resume).max_attempts(attempts(2)));
    give_up_half_way(&world, &operation).await;
    let ran = world.engine.run(&operation, async |_| Err(HandlerError::Unknown)).await;
    assert_eq!(ran.unwrap(), Ran::Abandoned(UnknownReason::Reported));
    let ran = world.engine.run(&operation, async |_| panic!("two are enough")).await.unwrap();
    let exhausted = UnknownReason::AttemptsExhausted;
    assert!(matches!(ran, Ran::Unknown(unknown) if unknown.reason == exhausted), "{ran:?}");
    assert!(saved(&world, &operation).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_did_nothing_keeps_the_point_of_those_before_it() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Resume));
    give_up_half_way(&world, &operation).await;
    let ran = world.engine.run(&operation, async |_| Err(HandlerError::NotExecuted)).await;
    assert_eq!(ran.unwrap(), Ran::Released);
    let ran = world.engine.run(&operation, async |context| {
        assert_eq!(context.checkpoint().map(Checkpoint::name), Some("charged"));
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn a_point_outside_the_limits_is_refused_before_it_reaches_the_store() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Resume));
    let ran = world.engine.run(&operation, async |context| {
        let refused = async |name: &str, size: usize| match context.save(name, vec![0; size]).await
        {
            Err(SaveError::Refused(error)) => Some(error),
            _ => None,
        };
        let long = "n".repeat(MAX_CHECKPOINT_NAME_BYTES + 1);
        assert_eq!(refused("", 1).await, Some(CheckpointError::Name(0)));
        assert_eq!(refused(&long, 1).await, Some(CheckpointError::Name(long.len())));
        let large = MAX_CHECKPOINT_BYTES + 1;
        assert_eq!(refused("large", large).await, Some(CheckpointError::Data(large)));
        assert_eq!(world.calls.of("checkpoint"), 0);
        assert_eq!(refused(&long[1..], MAX_CHECKPOINT_BYTES).await, None);
        assert_eq!(world.calls.of("checkpoint"), 1);
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn a_point_of_a_lost_claim_is_refused() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Resume));
    world.faults.always("renew", Fault::LostRequest);
    let other = world.second();
    let ran = world.engine.run(&operation, async |context| {
        pass(LEASE).await;
        let winner = other.engine.run(&operation, async |_| {
            let saved = context.save("late", "").await;
            assert!(matches!(saved, Err(SaveError::Lost(Lost::Superseded))), "{saved:?}");
            Ok(done())
        });
        assert_eq!(winner.await?, Ran::Executed(done()));
        let saved = context.save("later", "").await;
        assert!(matches!(saved, Err(SaveError::Lost(Lost::Superseded))), "{saved:?}");
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Superseded(Some(done())));
}

#[tokio::test(start_paused = true)]
async fn a_point_that_the_store_does_not_take_is_an_error_and_may_be_saved_again() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Resume));
    world.faults.next("checkpoint", [Fault::LostReply, Fault::LostRequest]);
    let ran = world.engine.run(&operation, async |context: Context| {
        for _ in 0..2 {
            let saved = context.save("charged", "2").await;
            assert!(matches!(saved, Err(SaveError::Store(_))), "{saved:?}");
        }
        context.save("charged", "2").await?;
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
    breathe().await;
    assert_eq!(world.calls.of("checkpoint"), 3);
}

#[tokio::test]
async fn a_late_copy_of_an_earlier_point_sets_nothing_back() {
    let store = MemoryStore::new(ManualClock::default());
    let operation = operation(policy(OnLapsed::Resume));
    let begin = Step::begin(&operation, Owner::new("a"), Token(1));
    let Answer::Claimed(claimed) = store.apply(&begin).await.unwrap() else { panic!("new") };
    let save = |name: &str, number| {
        let point = Checkpoint::new(name, "").unwrap().numbered(number);
        Step::new(operation.id(), Action::Checkpoint(claimed.fence, point))
    };
    for (name, number) in [("reserved", 1), ("charged", 2), ("reserved", 1)] {
        assert_eq!(store.apply(&save(name, number)).await.unwrap(), Answer::Applied);
    }
    let stored = store.get(&operation.id()).await.unwrap().unwrap();
    let State::InProgress(claim) = &stored.entry.record().unwrap().state else { panic!("running") };
    assert_eq!(claim.checkpoint.as_ref().map(Checkpoint::name), Some("charged"));
}

#[tokio::test(start_paused = true)]
async fn a_first_point_is_stored_with_the_claim_and_replaced_by_later_ones() {
    let world = World::new();
    let asked = Checkpoint::new("asked", "5 cents").unwrap();
    let operation = operation(policy(OnLapsed::Resume)).starting_from(asked.clone().numbered(7));
    let ran = world.engine.run(&operation, async |context| {
        assert_eq!(context.checkpoint(), Some(&asked), "it counts from the beginning");
        assert_eq!(saved(&world, &operation).await, Some(asked.clone()));
        Err(HandlerError::Unknown)
    });
    assert!(ran.await.is_ok());
    // Whoever takes over without one of its own gets it; a later point replaces it.
    let plain = crate::common::world::operation(policy(OnLapsed::Resume));
    let ran = world.engine.run(&plain, async |context| {
        assert_eq!(context.checkpoint(), Some(&asked));
        context.save("charged", "1").await?;
        Err(HandlerError::Unknown)
    });
    assert!(ran.await.is_ok());
    let ran = world.engine.run(&operation, async |context| {
        assert_eq!(context.checkpoint().map(Checkpoint::name), Some("charged"));
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn a_point_that_is_saved_by_other_means_has_its_place_in_the_order() {
    let world = World::new();
    let operation = operation(policy(OnLapsed::Resume));
    let ran = world.engine.run(&operation, async |context| {
        context.save("reserved", "1").await?;
        let late = context.point("charged", "2")?;
        let step = Step::new(operation.id(), Action::Checkpoint(context.fence(), late.clone()));
        assert_eq!(world.store.apply(&step).await?, Answer::Applied);
        assert_eq!(saved(&world, &operation).await, Some(late));
        context.save("shipped", "3").await?;
        assert_eq!(world.store.apply(&step).await?, Answer::Applied);
        assert_eq!(saved(&world, &operation).await.unwrap().name(), "shipped");
        Ok(done())
    });
    assert_eq!(ran.await.unwrap(), Ran::Executed(done()));
}
