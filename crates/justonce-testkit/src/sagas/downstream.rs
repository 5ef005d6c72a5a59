//! A service for tests: it has effects, recognises repetitions by their keys, and keeps a ledger.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use justonce_core::Key;
use tokio::sync::Notify;

use super::case::{Act, Case, Trouble};

/// How often a compensation fails before it succeeds, where it does not at once.
const UNDO_FAILS: u32 = 3;

/// What a call hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a call may have failed"]
pub enum CallReply {
    /// It has taken effect.
    Ok,
    /// It is refused for good; it did not take effect.
    Refused,
    /// Nothing: it may have taken effect.
    NoAnswer,
}

/// A service for tests. Cheap to clone; clones share the ledger.
#[derive(Clone, Debug)]
pub struct Downstream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    case: Case,
    ledger: Mutex<Ledger>,
    /// The process that would die. It is exchanged for each life.
    alive: Mutex<Arc<AtomicBool>>,
    died: Notify,
}

#[derive(Debug, Default)]
struct Ledger {
    /// By the key of the step: what is known of it.
    effects: HashMap<Key, Effect>,
    /// How often each call was made.
    calls: HashMap<(String, Act), u32>,
    has_died: bool,
}

#[derive(Clone, Debug)]
struct Effect {
    step: String,
    /// How often it took effect.
    done: u32,
    /// By which key it was undone, and how often that took effect.
    undone: Option<Key>,
    undone_times: u32,
}

impl Downstream {
    /// A service that brings about the trouble of a case.
    #[must_use]
    pub fn new(case: Case) -> Self {
        Self(Arc::new(Inner {
            case,
            ledger: Mutex::default(),
            alive: Mutex::new(Arc::new(AtomicBool::new(true))),
            died: Notify::new(),
        }))
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step takes effect, unless the case says otherwise. A repetition takes no effect, and hears
    /// the same.
    pub async fn step(&self, step: &str, key: &Key) -> CallReply {
        let refused = self.0.case.refused.as_deref() == Some(step);
        if refused {
            return CallReply::Refused;
        }
        self.call(step, Act::Step, || self.have_effect(step, key)).await
    }

    /// A step is undone: the one with this key. `key` is that of the compensation. A step that
    /// never came is refused from now on.
    pub async fn undo(&self, step: &str, step_key: &Key, key: &Key) -> CallReply {
        self.call(step, Act::Undo, || self.have_undone(step, step_key, key)).await
    }

    async fn call(&self, step: &str, act: Act, effect: impl Fn() -> CallReply) -> CallReply {
        let tries = {
            let mut ledger = self.ledger();
            let tries = ledger.calls.entry((step.to_owned(), act)).or_default();
            *tries += 1;
            *tries
        };
        let case = &self.0.case;
        let hit = case.step == step && case.act == act;
        let first = tries == 1;
        let fails = act == Act::Step || tries <= UNDO_FAILS;
        match case.trouble {
            Trouble::Refused if hit => CallReply::Refused,
            Trouble::ReplyLost if hit && first => {
                let _lost = effect();
                CallReply::NoAnswer
            }
            Trouble::NeverArrives if hit && fails => CallReply::NoAnswer,
            Trouble::NeverHeard if hit && fails => {
                let _lost = effect();
                CallReply::NoAnswer
            }
            Trouble::Repeated if hit => {
                let _first = effect();
                effect()
            }
            Trouble::DiesBefore if hit && !self.ledger().has_died => self.die().await,
            Trouble::DiesAfter if hit && !self.ledger().has_died => {
                let _lost = effect();
                self.die().await
            }
            _ => effect(),
        }
    }

    fn have_effect(&self, step: &str, key: &Key) -> CallReply {
        let mut ledger = self.ledger();
        let new = Effect { step: step.to_owned(), done: 0, undone: None, undone_times: 0 };
        let effect = ledger.effects.entry(key.clone()).or_insert(new);
        if effect.undone.is_some() {
            return CallReply::Refused;
        }
        effect.done = 1;
        CallReply::Ok
    }

    fn have_undone(&self, step: &str, step_key: &Key, key: &Key) -> CallReply {
        let mut ledger = self.ledger();
        let new = Effect { step: step.to_owned(), done: 0, undone: None, undone_times: 0 };
        let effect = ledger.effects.entry(step_key.clone()).or_insert(new);
        if effect.undone.as_ref() != Some(key) {
            effect.undone = Some(key.clone());
            effect.undone_times += 1;
        }
        CallReply::Ok
    }

    /// The process dies here: nothing of it reaches the store any more.
    async fn die(&self) -> CallReply {
        self.ledger().has_died = true;
        self.0.alive.lock().unwrap_or_else(PoisonError::into_inner).store(false, Ordering::Release);
        self.0.died.notify_one();
        std::future::pending().await
    }

    /// Waits until the process has died.
    pub async fn died(&self) {
        self.0.died.notified().await;
    }

    /// A new process, for a [`Mortal`](super::Mortal) store; the one before is dead.
    #[must_use]
    pub fn next_life(&self) -> Arc<AtomicBool> {
        let life = Arc::new(AtomicBool::new(true));
        *self.0.alive.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&life);
        life
    }

    /// What is wrong with the ledger after the operation ended, done or undone.
    #[must_use]
    pub fn wrong(&self, steps: &[&str], done: bool) -> Option<String> {
        let ledger = self.ledger();
        for &step in steps {
            let of_step = || ledger.effects.values().filter(|effect| effect.step == step);
            let all = of_step().map(|effect| effect.done).sum::<u32>();
            let lasting = of_step().filter(|effect| effect.done > 0 && effect.undone.is_none());
            let lasting = lasting.count();
            let undone_twice = of_step().any(|effect| effect.undone_times > 1);
            if all > 1 || undone_twice || lasting != usize::from(done) {
                let effects: Vec<_> = of_step().cloned().collect();
                return Some(format!("{step}: {lasting} last, done {done}: {effects:?}"));
            }
        }
        None
    }

    /// How often a step, or its compensation, was called.
    #[must_use]
    pub fn calls(&self, step: &str, act: Act) -> u32 {
        self.ledger().calls.get(&(step.to_owned(), act)).copied().unwrap_or_default()
    }
}
