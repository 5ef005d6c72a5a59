//! One seed in one world: its history, and what the auditor says of it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::auditor::{self, Violation};
use crate::base::{Base, Memory};
use crate::clock::JumpingClock;
use crate::embedded::Embedded;
use crate::generate;
use crate::history::{self, Event, Log, What};
use crate::panics;
use crate::plan::{Plan, World};
use crate::run;
use crate::runtimes;
use crate::shrink;

/// A run that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The world.
    pub world: World,
    /// The seed.
    pub seed: u64,
    /// What was broken.
    pub violation: Violation,
    /// What happened, as far as it matters, in lines.
    pub history: String,
}

/// The history of one plan.
///
/// What panics, or cannot be run at all, is a defect and no history without one.
pub(crate) fn carried_out(plan: &Plan) -> Vec<Event> {
    panics::watch();
    let ran = catch_unwind(AssertUnwindSafe(|| events_of(plan)));
    let (mut events, stopped) = match ran {
        Ok(Ok(events)) => (events, None),
        Ok(Err(error)) => (Vec::new(), Some(format!("there is no runtime: {error}"))),
        Err(_) => (Vec::new(), Some("the run panicked".to_owned())),
    };
    let last = events.last().map_or((0, 0), |event| (event.at, event.store_at));
    let broken = |why| Event { at: last.0, store_at: last.1, what: What::Broken { why } };
    events.extend(panics::seen().or(stopped).map(broken));
    events
}

fn events_of(plan: &Plan) -> io::Result<Vec<Event>> {
    run::with_paused_time(async {
        let clock = JumpingClock::new();
        let log = Log::new(clock.clone());
        let broken = |why: String| {
            log.add(What::Broken { why });
            log.events()
        };
        let base: Arc<dyn Base> = match plan.world {
            World::Embedded => match Embedded::create(plan.seed, clock.clone(), log.clone()) {
                Ok(base) => base,
                Err(why) => return broken(why),
            },
            World::Memory | World::Runtimes => Arc::new(Memory::new(clock.clone())),
        };
        let ran = run::run(plan.clone(), base, clock, log.clone()).await;
        ran.unwrap_or_else(|error| broken(error.to_string()))
    })
}

/// The whole history of a seed, in lines.
#[must_use]
pub fn history(world: World, seed: u64) -> String {
    match world {
        World::Runtimes => runtimes::run(seed).unwrap_or_else(|(_, lines)| lines),
        World::Memory | World::Embedded => {
            history::text(&carried_out(&generate::plan(world, seed)), None)
        }
    }
}

/// Runs one seed. A failure is made as small as can be if that is wanted.
///
/// # Errors
///
/// If a promise was broken.
pub fn run_seed(world: World, seed: u64, smaller: bool) -> Result<(), Box<Failure>> {
    if world == World::Runtimes {
        let failure = |(violation, history)| Box::new(Failure { world, seed, violation, history });
        return runtimes::run(seed).map(|_| ()).map_err(failure);
    }
    let mut plan = generate::plan(world, seed);
    let mut events = carried_out(&plan);
    let Some(mut violation) = auditor::violation(&plan, &events) else { return Ok(()) };
    if smaller {
        let rule = violation.rule;
        plan = shrink::smaller(plan, |plan| {
            auditor::violation(plan, &carried_out(plan)).is_some_and(|found| found.rule == rule)
        });
        events = carried_out(&plan);
        violation = auditor::violation(&plan, &events).unwrap_or(violation);
    }
    let history = history::text(&events, violation.operation);
    Err(Box::new(Failure { world, seed, violation, history }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_history() {
        for (world, seeds) in [(World::Memory, 0..150), (World::Embedded, 0..12)] {
            for seed in seeds {
                assert_eq!(history(world, seed), history(world, seed), "{world:?} {seed}");
            }
        }
    }

    #[test]
    fn what_ships_keeps_its_promises() {
        for (world, seeds) in [(World::Memory, 0..300), (World::Embedded, 0..20)] {
            for seed in seeds {
                let failure = run_seed(world, seed, false).err();
                assert!(failure.is_none(), "{failure:?}");
            }
        }
    }
}
