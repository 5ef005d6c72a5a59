//! The model check of phases: two workers on one journal, crashes and lost claims at every point.
//! The first and the last phase write in the store's transaction, the one in between calls a
//! service that recognises its key.

use justonce_core::Checkpoint;
use justonce_saga::Journal;
use stateright::{Checker, Model, Property};

const NAMES: [&str; 3] = ["write", "call", "book"];
const ONCE: &str = "every phase takes effect once at most, and once if the operation ended";
const HANDED_OVER: &str = "what is handed over is what took effect";
const FINISHED: &str = "what is saved as done does not run again";

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    CommitsWithoutItsFence,
    ForgetsTheJournal,
    SavesApart,
}

#[derive(Clone)]
struct Phased {
    wrong: Wrong,
    claims: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    saved: Vec<u8>,
    fence: u8,
    ended: bool,
    /// How often each phase took effect, and what came of it: the fence of who did it first.
    effects: [(u8, u8); 3],
    workers: [Option<Held>; 2],
    claims: u8,
    broken: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    fence: u8,
    journal: Vec<u8>,
    unsaved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Begin(usize),
    Crash(usize),
    /// Runs the next phase, or ends.
    Go(usize),
    Save(usize),
}

fn names() -> Vec<String> {
    NAMES.map(String::from).to_vec()
}

fn read(data: &[u8]) -> Journal {
    Journal::read(&Checkpoint::new("journal", data.to_vec()).unwrap(), &names()).unwrap()
}

fn written(journal: &Journal) -> Vec<u8> {
    journal.data().unwrap().to_vec()
}

impl Phased {
    fn go(&self, world: &mut World, worker: usize) -> Option<()> {
        let held = world.workers[worker].clone()?;
        let alive = held.fence == world.fence && !world.ended;
        let journal = read(&held.journal);
        let at = journal.done();
        let Some(name) = journal.next() else {
            world.ended |= alive;
            world.workers[worker] = None;
            return Some(());
        };
        if alive && at < read(&world.saved).done() {
            world.broken = Some(FINISHED);
        }
        let within = name != "call";
        if within && !alive && self.wrong != Wrong::CommitsWithoutItsFence {
            // The fence is checked in the transaction, which is rolled back.
            world.workers[worker] = None;
            return Some(());
        }
        let (count, by) = &mut world.effects[at];
        if within || *count == 0 {
            *count = count.saturating_add(1);
        }
        if *by == 0 {
            *by = held.fence;
        }
        let journal = written(&journal.with(by, 0).unwrap());
        let apart = !within || self.wrong == Wrong::SavesApart;
        if !apart {
            world.saved.clone_from(&journal);
        }
        world.workers[worker] = Some(Held { journal, unsaved: apart, ..held });
        Some(())
    }

    fn save(&self, world: &mut World, worker: usize) -> Option<()> {
        let held = world.workers[worker].as_mut()?;
        held.unsaved = false;
        if held.fence == world.fence && !world.ended {
            world.saved.clone_from(&held.journal);
        } else {
            world.workers[worker] = None;
        }
        Some(())
    }

    fn begin(&self, world: &mut World, worker: usize) -> Option<()> {
        world.claims = world.claims.checked_sub(1)?;
        world.fence += 1;
        let journal = match self.wrong {
            Wrong::ForgetsTheJournal => Journal::new(&names()),
            _ => read(&world.saved),
        };
        for number in 0..journal.done() {
            if journal.result::<u8>(number).unwrap() != Some(world.effects[number].1) {
                world.broken = Some(HANDED_OVER);
            }
        }
        let (fence, journal) = (world.fence, written(&journal));
        world.workers[worker] = Some(Held { fence, journal, unsaved: false });
        Some(())
    }
}

impl Model for Phased {
    type State = World;
    type Action = Move;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            saved: written(&Journal::new(&names())),
            fence: 0,
            ended: false,
            effects: [(0, 0); 3],
            workers: [None, None],
            claims: self.claims,
            broken: None,
        }]
    }

    fn actions(&self, world: &World, moves: &mut Vec<Move>) {
        for (worker, held) in world.workers.iter().enumerate() {
            match held {
                None if world.claims > 0 && !world.ended => moves.push(Move::Begin(worker)),
                None => {}
                Some(held) if held.unsaved => {
                    moves.extend([Move::Crash(worker), Move::Save(worker)]);
                }
                Some(_) => moves.extend([Move::Crash(worker), Move::Go(worker)]),
            }
        }
    }

    fn next_state(&self, world: &World, go: Move) -> Option<World> {
        let mut world = world.clone();
        match go {
            Move::Begin(worker) => self.begin(&mut world, worker)?,
            Move::Crash(worker) => world.workers[worker] = None,
            Move::Go(worker) => self.go(&mut world, worker)?,
            Move::Save(worker) => self.save(&mut world, worker)?,
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONCE, |_, world: &World| {
                let least = u8::from(world.ended);
                world.effects.iter().all(|(count, _)| (least..=1).contains(count))
            }),
            Property::always(HANDED_OVER, |_, world: &World| world.broken != Some(HANDED_OVER)),
            Property::always(FINISHED, |_, world: &World| world.broken != Some(FINISHED)),
            Property::sometimes("ended", |_, world: &World| world.ended),
            Property::sometimes("ended by the last claim", |model: &Self, world: &World| {
                world.ended && world.fence == model.claims
            }),
        ]
    }
}

#[test]
fn the_journal_keeps_the_promise_of_phases() {
    let checker = Phased { wrong: Wrong::Nothing, claims: 4 }.checker().spawn_bfs().join();
    let moments = checker.unique_state_count();
    println!("{moments} moments");
    assert!(checker.is_done(), "the world was not explored to its end");
    checker.assert_properties();
    assert!(moments >= 300, "only {moments} moments");
}

#[test]
fn every_mutant_of_phases_is_caught() {
    for (wrong, law) in [
        (Wrong::CommitsWithoutItsFence, ONCE),
        (Wrong::ForgetsTheJournal, FINISHED),
        (Wrong::SavesApart, ONCE),
    ] {
        let checker = Phased { wrong, claims: 4 }.checker().spawn_bfs().join();
        assert!(checker.discovery(law).is_some(), "{wrong:?} was not caught: {law}");
    }
}
