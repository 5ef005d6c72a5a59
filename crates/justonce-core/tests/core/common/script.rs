//! Faults by script, and a log of store calls.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use justonce_core::Step;
use justonce_core::store::{Fault, FaultPlan, Observer, Seen};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which faults the steps of each name meet. Clones share the script.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Arc<Mutex<Script>>);

#[derive(Debug, Default)]
struct Script {
    next: HashMap<String, VecDeque<Fault>>,
    always: HashMap<String, Fault>,
}

impl Faults {
    /// The next steps of this name meet these faults, one each.
    pub(crate) fn next(&self, name: &str, faults: impl IntoIterator<Item = Fault>) {
        let mut script = lock(&self.0);
        script.next.entry(name.to_owned()).or_default().extend(faults);
    }

    /// All steps of this name meet this fault until [`Faults::heal`].
    pub(crate) fn always(&self, name: &str, fault: Fault) {
        lock(&self.0).always.insert(name.to_owned(), fault);
    }

    /// No more faults.
    pub(crate) fn heal(&self) {
        *lock(&self.0) = Script::default();
    }
}

impl FaultPlan for Faults {
    fn fault(&self, step: &Step) -> Fault {
        let mut script = lock(&self.0);
        let name = step.action.name();
        let next = script.next.get_mut(name).and_then(VecDeque::pop_front);
        next.or_else(|| script.always.get(name).copied()).unwrap_or(Fault::None)
    }
}

/// Every store call with its result, in order. Clones share the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<(&'static str, String)>>>);

impl Calls {
    /// How many calls of this name ended.
    pub(crate) fn of(&self, name: &str) -> usize {
        lock(&self.0).iter().filter(|(call, _)| *call == name).count()
    }

    /// All calls.
    pub(crate) fn all(&self) -> Vec<(&'static str, String)> {
        lock(&self.0).clone()
    }

    /// How many calls ended.
    pub(crate) fn count(&self) -> usize {
        lock(&self.0).len()
    }
}

impl Observer for Calls {
    fn seen(&self, seen: Seen<'_>) {
        let result = match seen.result {
            Ok(answer) => answer.to_owned(),
            Err(error) => format!("{:?} {:?}", error.kind(), error.effect()),
        };
        lock(&self.0).push((seen.call, result));
    }
}
