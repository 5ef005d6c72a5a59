//! Permits that are offered in turn, and never handed over: whoever waits for one may be on a
//! runtime that is blocked, and would keep it from all others.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How long an offer stands. Then the runtime that did not take it counts as blocked, and its turns
/// go behind those of others.
const OFFER: Duration = Duration::from_millis(50);

/// A number of permits.
#[derive(Clone)]
pub(crate) struct Permits(Arc<Mutex<State>>);

struct State {
    free: usize,
    /// Those who wait. The first are offered what is free.
    queue: VecDeque<Arc<Turn>>,
}

struct Turn {
    runtime: Option<runtime::Id>,
    /// When it was offered a permit.
    offered: Mutex<Option<Instant>>,
    signal: Notify,
}

/// A permit. It is free again when this is dropped.
pub(crate) struct Permit(Permits);

/// A place in the queue.
struct Place<'a> {
    permits: &'a Permits,
    turn: Arc<Turn>,
}

impl Permits {
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: count, queue: VecDeque::new() })))
    }

    /// How many nobody has.
    pub(crate) fn free(&self) -> usize {
        self.state().free
    }

    /// A permit that nobody waits for.
    pub(crate) fn try_take(&self) -> Option<Permit> {
        let mut state = self.state();
        state.pass_over();
        let is_spare = state.free > state.queue.len();
        state.free -= usize::from(is_spare);
        is_spare.then(|| Permit(self.clone()))
    }

    /// A permit, in turn; nothing if there is none until then.
    pub(crate) async fn take(&self, until: Instant) -> Option<Permit> {
        let place = self.queue();
        loop {
            if place.is_first() {
                return Some(Permit(self.clone()));
            }
            let now = Instant::now();
            if now >= until {
                return None;
            }
            let _ = timeout_at(until.min(now + OFFER), place.turn.signal.notified()).await;
        }
    }

    fn queue(&self) -> Place<'_> {
        let runtime = Handle::try_current().ok().map(|handle| handle.id());
        let (offered, signal) = Default::default();
        let turn = Arc::new(Turn { runtime, offered, signal });
        self.state().queue.push_back(Arc::clone(&turn));
        Place { permits: self, turn }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl State {
    /// Offers what is free to the first in the queue.
    fn offer(&self) {
        for turn in self.queue.iter().take(self.free) {
            let mut offered = lock(&turn.offered);
            if offered.is_none() {
                *offered = Some(Instant::now());
                turn.signal.notify_one();
            }
        }
    }

    /// Those who did not take their offers go to the end, with all others of their runtimes.
    fn pass_over(&mut self) {
        let is_late = |turn: &Turn| lock(&turn.offered).is_some_and(|at| at.elapsed() >= OFFER);
        let first = self.queue.iter().take(self.free);
        let blocked: Vec<_> = first.filter(|turn| is_late(turn)).map(|turn| turn.runtime).collect();
        if blocked.is_empty() {
            return;
        }
        let (late, mut queue): (VecDeque<_>, VecDeque<_>) =
            self.queue.drain(..).partition(|turn| blocked.contains(&turn.runtime));
        for turn in &late {
            *lock(&turn.offered) = None;
        }
        queue.extend(late);
        self.queue = queue;
        self.offer();
    }

    fn remove(&mut self, turn: &Arc<Turn>) {
        if let Some(at) = self.queue.iter().position(|other| Arc::ptr_eq(other, turn)) {
            self.queue.remove(at);
        }
    }
}

impl Place<'_> {
    /// Takes a permit if one is free for this place.
    fn is_first(&self) -> bool {
        let mut state = self.permits.state();
        state.pass_over();
        let first = state.queue.iter().take(state.free).any(|turn| Arc::ptr_eq(turn, &self.turn));
        if first {
            state.free -= 1;
            state.remove(&self.turn);
        }
        first
    }
}

impl Drop for Place<'_> {
    /// An offer that was not taken goes to the next one.
    fn drop(&mut self) {
        let mut state = self.permits.state();
        state.remove(&self.turn);
        state.offer();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.free += 1;
        state.offer();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
