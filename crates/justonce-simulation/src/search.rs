//! Runs seed after seed, on all cores, for as long as it is told to.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::plan::World;
use crate::worlds::{Failure, run_seed};

/// A run with real threads waits for most of its time, so that more of them than cores have work.
const WORKERS_PER_CORE: usize = 4;

/// A seed in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed {
    /// The world.
    pub world: World,
    /// The number.
    pub number: u64,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Search {
    /// Runs that come first, each whatever the limits are.
    pub known: Vec<Seed>,
    /// Where fresh seeds begin.
    pub from: u64,
    /// So many fresh seeds at most.
    pub seeds: u64,
    /// For so long at most.
    pub time: Duration,
    /// Only in this world; nothing for all.
    pub world: Option<World>,
}

/// What was run.
#[derive(Clone, Debug)]
pub struct Found {
    /// How many runs there were in each world.
    pub runs: [u64; 3],
    /// How long they took.
    pub took: Duration,
    /// The first run that broke a promise, made smaller.
    pub failure: Option<Failure>,
    /// Whether a thread panicked: then it is not known what the runs have shown.
    pub panicked: bool,
}

impl Seed {
    /// Reads a line of the file of seeds: a world and a number. Nothing for other lines.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let world = World::parse(words.next()?)?;
        Some(Self { world, number: words.next()?.parse().ok()? })
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.world.name(), self.number)
    }
}

/// Which world a fresh seed is run in. Most find something in memory; what needs real time is rare.
const fn world_of(number: u64) -> World {
    match number % 32 {
        0 => World::Runtimes,
        1..=10 => World::Embedded,
        _ => World::Memory,
    }
}

impl Search {
    /// Runs until something fails, or the limits are reached.
    #[must_use]
    pub fn run(&self) -> Found {
        let start = now();
        let shared = Arc::new(Shared {
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            runs: [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)],
            failure: Mutex::new(None),
        });
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let workers: Vec<_> = (0..cores * WORKERS_PER_CORE)
            .map(|_| {
                let (search, shared) = (self.clone(), Arc::clone(&shared));
                thread::spawn(move || search.work(&shared, start))
            })
            .collect();
        let mut panicked = false;
        for worker in workers {
            if worker.join().is_err() {
                // The panic has been printed.
                panicked = true;
                shared.stop.store(true, Ordering::Relaxed);
            }
        }
        let took = now().duration_since(start);
        let failed = shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        let failure = failed.map(|failure| {
            // Once more, to make it smaller.
            let again = run_seed(failure.world, failure.seed, true).err();
            again.map_or(failure, |smaller| *smaller)
        });
        let runs = shared.runs.each_ref().map(|runs| runs.load(Ordering::Relaxed));
        Found { runs, took, failure, panicked }
    }

    fn work(&self, shared: &Shared, start: Instant) {
        while !shared.stop.load(Ordering::Relaxed) {
            let at = shared.next.fetch_add(1, Ordering::Relaxed);
            let known = usize::try_from(at).ok().and_then(|at| self.known.get(at));
            let seed = match known {
                Some(seed) => *seed,
                None => match self.fresh(at - self.known.len() as u64, start) {
                    Some(seed) => seed,
                    None => return,
                },
            };
            if let Some(runs) = shared.runs.get(seed.world as usize) {
                runs.fetch_add(1, Ordering::Relaxed);
            }
            if let Err(failure) = run_seed(seed.world, seed.number, false) {
                shared.stop.store(true, Ordering::Relaxed);
                let mut first = shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(*failure);
            }
        }
    }

    /// The fresh seed at this place, if it is still wanted.
    fn fresh(&self, at: u64, start: Instant) -> Option<Seed> {
        if at >= self.seeds || now().duration_since(start) >= self.time {
            return None;
        }
        let number = self.from.wrapping_add(at);
        Some(Seed { world: self.world.unwrap_or_else(|| world_of(number)), number })
    }
}

struct Shared {
    next: AtomicU64,
    stop: AtomicBool,
    runs: [AtomicU64; 3],
    failure: Mutex<Option<Failure>>,
}

#[expect(clippy::disallowed_methods, reason = "a limit for people; no run depends on it")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_file_of_seeds_are_read() {
        let seed = Seed { world: World::Embedded, number: 17 };
        assert_eq!(Seed::parse(&format!("{seed} # a comment")), Some(seed));
        assert_eq!(Seed::parse("# only a comment"), None);
        assert_eq!(Seed::parse(""), None);
    }

    #[test]
    fn known_seeds_are_run_whatever_the_limits() {
        let known = vec![Seed { world: World::Memory, number: 3 }];
        let search = Search { known, from: 0, seeds: 0, time: Duration::ZERO, world: None };
        let found = search.run();
        assert_eq!(found.runs, [1, 0, 0]);
        assert!(found.failure.is_none());
    }
}
