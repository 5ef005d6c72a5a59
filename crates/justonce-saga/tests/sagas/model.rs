//! The model check of sagas: two workers on one log, crashes, lost claims, refusals and lost
//! replies at every point, under the shipped rules. Each mutant breaks one rule, and a law catches
//! it.
//!
//! What is called recognises repetitions by the key, remembers a refusal, and refuses a step that
//! was undone before it came: that is what sagas ask of it.

use justonce_core::Checkpoint;
use justonce_saga::{End, Event, Log, Mark, Next, PlannedStep, next};
use stateright::{Checker, Model, Property};

type Rules = fn(&Log) -> Next;

/// A step by name, group, and whether it has a compensation.
type Plan = &'static [(&'static str, usize, bool)];

const IN_ORDER: Plan = &[("a", 0, true), ("b", 1, true), ("c", 2, true)];
const BESIDE: Plan = &[("a", 0, true), ("b", 0, true), ("c", 1, true)];
const NO_WAY_BACK: Plan = &[("a", 0, true), ("b", 1, false)];

#[derive(Clone)]
struct Sagas {
    plan: Plan,
    rules: Rules,
    /// What a retry makes of what is parked.
    retried: fn(Log) -> Log,
    /// Whether the log is saved before the first compensation.
    saves_the_fall: bool,
    claims: u8,
    troubles: u8,
}

/// What a service knows of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Effect {
    Never,
    Done,
    Refused,
    Undone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    saved: Vec<u8>,
    fence: u8,
    ended: Option<End>,
    effects: Vec<Effect>,
    workers: [Option<Held>; 2],
    claims: u8,
    troubles: u8,
    broken: Option<&'static str>,
    stuck: bool,
    parked: bool,
}

/// A claim in a worker's hands, alive or lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    fence: u8,
    log: Vec<u8>,
    /// The calls under way: of steps, or of compensations.
    calls: Vec<usize>,
    undoing: bool,
    unsaved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Begin(usize),
    Crash(usize),
    /// Decides what comes next and sends it, or ends.
    Go(usize),
    Answer(usize, usize, How),
    Save(usize),
    /// Somebody retries what is parked.
    Retry,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Heard,
    Refused,
    /// It took effect, and nobody heard, so often that it is given up.
    Unheard,
    /// It never came, and is given up.
    Lost,
    /// It took effect, and its result cannot be saved.
    TooLarge,
}

const ALL_OR_NOTHING: &str = "an ended saga is entirely done or entirely undone, and stays so";
const ORDER: &str = "a group runs after those before it, and is undone before them";
const FINISHED: &str = "what is saved as done is not called again";
const NOT_GIVEN_UP: &str = "what cannot be undone is not given up";
const PARKED: &str = "nothing of what is saved as parked is called before somebody retries it";

/// As the library does it.
fn retried(log: Log) -> Log {
    log.retried().unparked(0)
}

fn read(data: &[u8]) -> Log {
    Log::read(&Checkpoint::new("log", data.to_vec()).unwrap()).unwrap()
}

fn written(log: &Log) -> Vec<u8> {
    log.data().unwrap().to_vec()
}

impl Sagas {
    fn shipped(plan: Plan) -> Self {
        Self { plan, rules: next, retried, saves_the_fall: true, claims: 3, troubles: 2 }
    }

    fn group(&self, step: usize) -> usize {
        self.plan[step].1
    }

    /// A worker decides what comes next.
    fn go(&self, world: &mut World, worker: usize) -> Option<()> {
        let held = world.workers[worker].as_mut()?;
        let log = read(&held.log);
        let alive = held.fence == world.fence && world.ended.is_none();
        let (calls, undoing) = match (self.rules)(&log) {
            Next::Run(steps) => (steps, false),
            Next::Undo(steps) => (steps, true),
            Next::End(end) => {
                world.workers[worker] = None;
                match end {
                    End::Stuck => world.stuck = true,
                    End::Parked => world.parked = true,
                    End::Done | End::RolledBack if alive => world.ended = Some(end),
                    End::Done | End::RolledBack => {}
                }
                return Some(());
            }
        };
        let saved = read(&world.saved);
        if alive && saved.parked().is_some() {
            world.broken = Some(PARKED);
        }
        let again = |step: &usize| saved.steps()[*step].mark == Mark::Done;
        if alive && !undoing && calls.iter().any(again) {
            world.broken = Some(FINISHED);
        }
        for &step in &calls {
            let out_of_order = |(other, effect): (usize, &Effect)| match undoing {
                false => self.group(other) < self.group(step) && *effect != Effect::Done,
                true => {
                    let stuck = log.steps()[other].mark == Mark::StuckBack || !self.plan[other].2;
                    self.group(other) > self.group(step) && *effect == Effect::Done && !stuck
                }
            };
            if alive && world.effects.iter().enumerate().any(out_of_order) {
                world.broken = Some(ORDER);
            }
        }
        held.calls = calls;
        held.undoing = undoing;
        Some(())
    }

    /// A call ends. What the service does, it does whoever calls.
    fn answer(&self, world: &mut World, worker: usize, step: usize, how: How) -> Option<()> {
        let held = world.workers[worker].as_mut()?;
        held.calls.retain(|call| *call != step);
        if how != How::Heard {
            world.troubles = world.troubles.checked_sub(1)?;
        }
        let effect = &mut world.effects[step];
        let arrives = how != How::Lost;
        let event = if held.undoing {
            if arrives && *effect != Effect::Refused {
                *effect = Effect::Undone;
            }
            if how == How::Heard { Event::Undone } else { Event::NotUndone(String::new()) }
        } else {
            *effect = match *effect {
                Effect::Never if how == How::Refused => Effect::Refused,
                Effect::Never if arrives => Effect::Done,
                before => before,
            };
            match (how, *effect) {
                (How::Unheard | How::Lost, _) => Event::GivenUp(String::new()),
                (How::TooLarge, Effect::Done) => Event::Unsaved(String::new()),
                (_, Effect::Done) => Event::Done,
                _ => Event::Refused(String::new()),
            }
        };
        let mut log = read(&held.log);
        let ahead = !log.is_rolled_back();
        log.note(step, event);
        let falls = ahead && log.is_rolled_back();
        if log.is_rolled_back() && log.steps()[step].mark == Mark::StuckAhead {
            world.broken = Some(NOT_GIVEN_UP);
        }
        if !self.plan[step].2 && how == How::Unheard && log.is_rolled_back() {
            world.broken = Some(NOT_GIVEN_UP);
        }
        held.log = written(&log);
        // As the library does it: a fall is saved when nothing is under way any more.
        let waits = log.is_rolled_back() && !held.undoing && !held.calls.is_empty();
        let over = matches!(next(&log), Next::End(End::Done | End::RolledBack));
        held.unsaved = !waits && !over && (self.saves_the_fall || !falls);
        Some(())
    }

    fn save(&self, world: &mut World, worker: usize) -> Option<()> {
        let held = world.workers[worker].as_mut()?;
        held.unsaved = false;
        if held.fence == world.fence && world.ended.is_none() {
            world.saved.clone_from(&held.log);
        } else {
            world.workers[worker] = None;
        }
        Some(())
    }

    fn all_or_nothing(&self, world: &World) -> bool {
        match world.ended {
            Some(End::Done) => world.effects.iter().all(|effect| *effect == Effect::Done),
            Some(End::RolledBack) => {
                let lasting =
                    |(step, effect): (usize, &Effect)| *effect == Effect::Done && self.plan[step].2;
                !world.effects.iter().enumerate().any(lasting)
            }
            _ => true,
        }
    }
}

impl Model for Sagas {
    type State = World;
    type Action = Move;

    fn init_states(&self) -> Vec<World> {
        let step = |&(name, group, undo): &(&str, usize, bool)| PlannedStep {
            name: name.to_owned(),
            group,
            undo,
        };
        let plan: Vec<PlannedStep> = self.plan.iter().map(step).collect();
        vec![World {
            saved: written(&Log::new("saga", &plan, &()).unwrap()),
            fence: 0,
            ended: None,
            effects: vec![Effect::Never; plan.len()],
            workers: [None, None],
            claims: self.claims,
            troubles: self.troubles,
            broken: None,
            stuck: false,
            parked: false,
        }]
    }

    fn actions(&self, world: &World, moves: &mut Vec<Move>) {
        if world.ended.is_none() && read(&world.saved).parked().is_some() {
            moves.push(Move::Retry);
        }
        for (worker, held) in world.workers.iter().enumerate() {
            let Some(held) = held else {
                if world.claims > 0 && world.ended.is_none() {
                    moves.push(Move::Begin(worker));
                }
                continue;
            };
            moves.push(Move::Crash(worker));
            if held.unsaved {
                moves.push(Move::Save(worker));
            } else if held.calls.is_empty() {
                moves.push(Move::Go(worker));
            }
            for &step in held.calls.iter().filter(|_| !held.unsaved) {
                let hows = [How::Heard, How::Refused, How::Unheard, How::Lost, How::TooLarge];
                let ahead = |how: &How| matches!(how, How::Refused | How::TooLarge);
                let fits = |how: &How| !(held.undoing && ahead(how));
                moves.extend(hows.into_iter().filter(fits).map(|h| Move::Answer(worker, step, h)));
            }
        }
    }

    fn next_state(&self, world: &World, go: Move) -> Option<World> {
        let mut world = world.clone();
        match go {
            Move::Begin(worker) => {
                world.claims = world.claims.checked_sub(1)?;
                world.fence += 1;
                let log = written(&read(&world.saved).retried());
                let (fence, calls) = (world.fence, Vec::new());
                world.workers[worker] =
                    Some(Held { fence, log, calls, undoing: false, unsaved: false });
            }
            Move::Crash(worker) => world.workers[worker] = None,
            Move::Go(worker) => self.go(&mut world, worker)?,
            Move::Answer(worker, step, how) => self.answer(&mut world, worker, step, how)?,
            Move::Save(worker) => self.save(&mut world, worker)?,
            Move::Retry => {
                // Under a claim of its own, so that whoever still works is refused.
                world.fence += 1;
                world.saved = written(&(self.retried)(read(&world.saved)));
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ALL_OR_NOTHING, |model: &Self, world| model.all_or_nothing(world)),
            Property::always(ORDER, |_, world: &World| world.broken != Some(ORDER)),
            Property::always(FINISHED, |_, world: &World| world.broken != Some(FINISHED)),
            Property::always(NOT_GIVEN_UP, |_, world: &World| world.broken != Some(NOT_GIVEN_UP)),
            Property::always(PARKED, |_, world: &World| world.broken != Some(PARKED)),
            Property::sometimes("parked", |_, world: &World| world.parked),
            Property::sometimes("parked, retried and done", |_, world: &World| {
                world.parked && world.ended == Some(End::Done)
            }),
            Property::sometimes("done", |_, world: &World| world.ended == Some(End::Done)),
            Property::sometimes("rolled back", |_, w: &World| w.ended == Some(End::RolledBack)),
            Property::sometimes("stuck", |_, world: &World| world.stuck),
            Property::sometimes("done by a third claim", |model: &Self, world: &World| {
                world.ended == Some(End::Done) && world.claims == model.claims - 3
            }),
        ]
    }
}

fn explore(plan: Plan, least: usize) {
    let checker = Sagas::shipped(plan).checker().spawn_bfs().join();
    let moments = checker.unique_state_count();
    println!("{moments} moments");
    assert!(checker.is_done(), "the world was not explored to its end");
    checker.assert_properties();
    assert!(moments >= least, "only {moments} moments");
}

#[test]
fn the_rules_keep_the_promise_of_steps_in_order() {
    explore(IN_ORDER, 1000);
}

#[test]
fn the_rules_keep_the_promise_of_steps_beside_each_other() {
    explore(BESIDE, 1000);
}

#[test]
fn the_rules_keep_the_promise_of_a_step_without_way_back() {
    explore(NO_WAY_BACK, 500);
}

fn hunt(model: Sagas, law: &'static str) {
    let checker = model.checker().spawn_bfs().join();
    assert!(checker.discovery(law).is_some(), "the mutant was not caught: {law}");
}

fn mutant(rules: Rules) -> Sagas {
    Sagas { rules, ..Sagas::shipped(IN_ORDER) }
}

#[test]
fn a_fall_that_is_not_saved_first_is_caught() {
    hunt(Sagas { saves_the_fall: false, ..Sagas::shipped(IN_ORDER) }, ALL_OR_NOTHING);
}

#[test]
fn a_doubted_step_that_is_not_undone_is_caught() {
    fn forgets_doubts(log: &Log) -> Next {
        match next(log) {
            Next::Undo(steps) => {
                let sure = |step: &usize| log.steps()[*step].mark == Mark::Done;
                let sure: Vec<usize> = steps.into_iter().filter(sure).collect();
                if sure.is_empty() { Next::End(End::RolledBack) } else { Next::Undo(sure) }
            }
            other => other,
        }
    }
    hunt(mutant(forgets_doubts), ALL_OR_NOTHING);
}

#[test]
fn a_stuck_saga_that_calls_itself_rolled_back_is_caught() {
    fn gives_up(log: &Log) -> Next {
        match next(log) {
            Next::End(End::Stuck) => Next::End(End::RolledBack),
            other => other,
        }
    }
    hunt(mutant(gives_up), ALL_OR_NOTHING);
}

#[test]
fn undoing_from_the_first_is_caught() {
    fn first_first(log: &Log) -> Next {
        let done = |step: &usize| matches!(log.steps()[*step].mark, Mark::Done | Mark::Doubted);
        match next(log) {
            Next::Undo(_) => Next::Undo((0..log.steps().len()).filter(done).take(1).collect()),
            other => other,
        }
    }
    hunt(mutant(first_first), ORDER);
}

#[test]
fn ending_before_the_last_step_is_caught() {
    fn hurries(log: &Log) -> Next {
        match next(log) {
            Next::Run(steps) if steps == [2] => Next::End(End::Done),
            other => other,
        }
    }
    hunt(mutant(hurries), ALL_OR_NOTHING);
}

#[test]
fn running_a_finished_step_again_is_caught() {
    fn starts_anew(log: &Log) -> Next {
        match next(log) {
            Next::Run(steps) if steps == [1] => Next::Run(vec![0, 1]),
            other => other,
        }
    }
    hunt(mutant(starts_anew), FINISHED);
}

#[test]
fn calling_a_parked_saga_is_caught() {
    fn tries_all_the_same(log: &Log) -> Next {
        next(&log.clone().unparked(0))
    }
    hunt(mutant(tries_all_the_same), PARKED);
}

#[test]
fn a_retry_that_forgets_what_took_effect_unsaved_is_caught() {
    // As if a step whose result could not be saved had never been called.
    fn forgets(log: Log) -> Log {
        let is_unsaved = |step: &justonce_saga::LoggedStep| step.mark == Mark::Unsaved;
        let unsaved: Vec<usize> =
            (0..log.steps().len()).filter(|step| is_unsaved(&log.steps()[*step])).collect();
        let mut log = log.retried().unparked(0);
        if log.is_rolled_back() {
            for step in unsaved {
                log.note(step, Event::Refused(String::new()));
            }
        }
        log
    }
    hunt(Sagas { retried: forgets, ..Sagas::shipped(BESIDE) }, ALL_OR_NOTHING);
}
