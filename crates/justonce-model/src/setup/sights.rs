//! What must be seen to happen: a law that nothing could break proves nothing.

use justonce_core::{AwaitingRetry, Entry, Failed, Outcome, Record, State, UnknownReason};
use stateright::{Model, Property};

use super::worlds::Setup;
use crate::world::{Disk, End, Phase, Point, Request, World, end_of};

/// A model of the world of a setup.
pub(crate) trait Explored: Model<State = World> {
    fn setup(&self) -> &Setup;
}

macro_rules! sights {
    ($($sight:ident: $name:literal, |$setup:pat_param, $world:ident| $seen:expr;)*) => {
        /// What must be seen to happen at some moment.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Sight {
            $(#[doc = $name] $sight,)*
        }

        impl Sight {
            /// The sight in words; the name of the checker's property.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$sight => $name,)* }
            }

            pub(crate) fn property<M: Explored>(self) -> Property<M> {
                match self {
                    $(Self::$sight => Property::sometimes($name, |model: &M, $world: &World| {
                        let $setup = model.setup();
                        $seen
                    }),)*
                }
            }
        }
    };
}

sights! {
    Stored: "a worker's outcome is stored", |_, world| over(world, End::Stored);
    Replayed: "a duplicate hears the outcome of another", |_, world| over(world, End::Replayed);
    Refused: "a worker's write is refused", |_, world| over(world, End::Lost);
    Expired: "a late arrival is refused", |_, world| over(world, End::Expired);
    ReplyLost: "a claim is granted and its owner does not know", |_, world| {
        let Some(State::InProgress(claim)) = world.state() else { return false };
        world.workers.contains(&Phase::Asking(claim.token))
    };
    Orphan: "a claim is alive and nobody is there to know of it", |_, world| {
        let away = |phase: &Phase| matches!(phase, Phase::Away | Phase::Over(_));
        let alive = matches!(world.state(), Some(State::InProgress(c)) if c.is_alive(world.now));
        alive && world.workers.iter().all(away)
    };
    TakenOver: "a lapsed claim is taken over while its owner still believes in it", |_, world| {
        holders(world) >= 2
    };
    RanTwice: "the effect happens twice, where the promise allows it", |_, world| {
        world.book.effects >= 2
    };
    Unknown: "an operation is unknown", |_, world| {
        matches!(world.state(), Some(State::Unknown(_)))
    };
    Exhausted: "the last attempt lapses and the operation is unknown", |_, world| {
        let exhausted = UnknownReason::AttemptsExhausted;
        matches!(world.state(), Some(State::Unknown(unknown)) if unknown.reason == exhausted)
    };
    Resolved: "an unknown operation is resolved", |setup, world| {
        end_of(world.entry.as_ref()) == Some(&setup.found)
    };
    LateOwner: "a worker settles what has become unknown", |_, world| {
        let says = |phase: &Phase| matches!(phase, Phase::Saying(..));
        matches!(world.state(), Some(State::Unknown(_))) && world.workers.iter().any(says)
    };
    LateRequest: "a request is under way longer than its claim lasts", |_, world| {
        let Some(fence) = world.entry.as_ref().map(Entry::fence) else { return false };
        world.late.iter().any(|late| match late {
            Request::Begin(_) => false,
            Request::Say(old, _) | Request::Renew(old) => *old < fence,
            Request::Save(old, ..) | Request::Resolve(old, _) => *old < fence,
        })
    };
    Forgettable: "something is not on disk yet", |_, world| world.disk != Disk::Same;
    Waiting: "a back-off is running", |_, world| {
        matches!(waiting(world), Some((_, waiting)) if waiting.retry_at > world.now)
    };
    GivenBack: "a later attempt is given back, and the first still counts", |_, world| {
        matches!(waiting(world), Some((1.., waiting)) if waiting.failure == Outcome::empty())
    };
    Freed: "an unknown operation is freed, and it can be seen that it was", |_, world| {
        matches!(waiting(world), Some((0, _)))
    };
    HeldUnseen: "an owner believes in a claim that is held, and nobody has looked", |_, world| {
        let Some((fence, claim)) = world.claim() else { return false };
        let believes = |phase: &Phase| matches!(phase, Phase::Holding(held) if held.fence == fence);
        !claim.is_alive(world.now) && world.workers.iter().any(believes)
    };
    LateCopy: "a copy of the first checkpoint is late when the second is stored", |setup, world| {
        let Some((fence, claim)) = world.claim() else { return false };
        let last = setup.point(claim.checkpoint.as_ref());
        let before = |point: Point| point < last;
        let late = |late: &Request| {
            matches!(late, Request::Save(of, point, _) if *of == fence && before(*point))
        };
        world.late.iter().any(late)
    };
    FailedForGood: "a failure is stored for good", |_, world| {
        matches!(world.state(), Some(State::Failed(Failed::Final(_))))
    };
    Buried: "only a tombstone remains", |_, world| {
        matches!(world.entry, Some(Entry::Tombstone(_)))
    };
    NewAfterRetention: "the key serves a new operation after the retention", |_, world| {
        world.book.anew && over(world, End::Stored)
    };
    HandedOver: "a takeover receives a checkpoint", |_, world| {
        let Some(Entry::Record(record)) = &world.entry else { return false };
        let saved = matches!(&record.state, State::InProgress(c) if c.checkpoint.is_some());
        saved && record.attempt > 1
    };
}

fn waiting(world: &World) -> Option<(u32, &AwaitingRetry)> {
    match world.entry.as_ref()?.record()? {
        Record { attempt, state: State::Failed(Failed::AwaitingRetry(waiting)), .. } => {
            Some((*attempt, waiting))
        }
        _ => None,
    }
}

fn over(world: &World, end: End) -> bool {
    world.workers.contains(&Phase::Over(end))
}

fn holders(world: &World) -> usize {
    let holds = |phase: &&Phase| matches!(phase, Phase::Holding(_));
    world.workers.iter().filter(holds).count()
}
