//! Steps of many callers in as few commands as will do, for backends in which a command costs more
//! than a step.

mod telling;
mod watch;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::codec::outcome_size;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::outcome::Outcome;
use telling::Telling;

/// The largest outcome that goes together with others, in bytes: many of them make one command.
const SHARED_OUTCOME_BYTES: usize = 16 * 1024;

/// Whether an outcome is small enough to go together with others.
#[must_use]
pub fn may_share(outcome: &Outcome) -> bool {
    outcome_size(outcome) <= SHARED_OUTCOME_BYTES
}

/// What takes steps to a server, several in one command.
pub trait Carrier: Send + Sync + 'static {
    /// A step, as it is carried.
    type Load: Send + 'static;
    /// What its caller hears.
    type Answer: Send + 'static;
    /// By what a command goes: a connection.
    type Way: Send;

    /// Whether a step may go together with these. Any step may go alone.
    fn joins(&self, going: &[Waiting<Self>], next: &Self::Load) -> bool {
        let _ = (going, next);
        true
    }

    /// A way to the server. However long that takes, nobody is taken before: whoever stops waiting
    /// meanwhile has not asked for anything.
    fn way(&self) -> impl Future<Output = StoreResult<Self::Way>> + Send;

    /// Takes steps to the server, at once, and gives what to tell each caller. There is one step at
    /// least. Whoever is left out hears that the step may have been applied.
    fn carry(
        &self,
        way: StoreResult<Self::Way>,
        going: Vec<Waiting<Self>>,
    ) -> impl Future<Output = Told<Self::Answer>> + Send;
}

/// A step that waits, and who waits for it.
pub struct Waiting<C: Carrier + ?Sized> {
    /// The step.
    pub load: C::Load,
    /// Who waits.
    pub caller: Caller<C::Answer>,
}

/// Callers, and what each of them hears.
pub type Told<A> = Vec<(Caller<A>, StoreResult<A>)>;

/// Who waits for a step.
pub struct Caller<A>(oneshot::Sender<StoreResult<A>>);

impl<A> Caller<A> {
    /// Whether the caller has stopped waiting.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    /// Tells the caller. One that is gone has left its claim to be given back.
    fn tell(self, answer: StoreResult<A>) {
        let _ = self.0.send(answer);
    }
}

/// How many go at once, and how long steps wait.
#[derive(Clone, Copy, Debug)]
pub struct LaneLimits {
    /// So many commands are on their way before anybody waits, as long as each takes one step: a
    /// few callers are not in each other's way. When steps go together, it is one.
    pub alone: usize,
    /// So many are on their way at most.
    pub at_most: usize,
    /// So many steps go in one command at most. When so many wait, another one goes beside those
    /// that are on their way.
    pub together: usize,
    /// How long steps wait for a command. Then another one goes beside it, and later one more, each
    /// after as long again.
    pub patience: Duration,
}

/// A queue of steps of one kind. While a command is on its way, those who come wait, and go
/// together with the next.
///
/// Nobody waits for company: a step goes as soon as a command before it is back, or has taken too
/// long. What is won is what a command costs besides its steps.
///
/// ```
/// use justonce_core::StoreResult;
/// use justonce_core::store::{Carrier, LaneLimits, Lanes, Told, Waiting};
/// use std::time::Duration;
///
/// struct Doubling;
///
/// impl Carrier for Doubling {
///     type Load = u32;
///     type Answer = u32;
///     type Way = ();
///
///     async fn way(&self) -> StoreResult<()> {
///         Ok(())
///     }
///
///     async fn carry(&self, _: StoreResult<()>, going: Vec<Waiting<Self>>) -> Told<u32> {
///         going.into_iter().map(|Waiting { load, caller }| (caller, Ok(2 * load))).collect()
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> StoreResult<()> {
/// let patience = Duration::from_millis(2);
/// let limits = LaneLimits { alone: 2, at_most: 8, together: 32, patience };
/// let lanes = Lanes::new(Doubling, limits);
/// assert_eq!(lanes.apply(4).await?, 8);
/// # Ok(())
/// # }
/// ```
pub struct Lanes<C: Carrier> {
    carrier: C,
    limits: LaneLimits,
    queue: Mutex<Queue<C>>,
}

struct Queue<C: Carrier> {
    busy: usize,
    /// How many went together the last time.
    last: usize,
    /// How many times somebody went. It may begin anew.
    taken: u64,
    /// Whether somebody looks after those who wait.
    watched: bool,
    /// Those who are about to be told.
    telling: Vec<Weak<Telling<C::Answer>>>,
    waiting: VecDeque<Waiting<C>>,
}

impl<C: Carrier> Default for Queue<C> {
    fn default() -> Self {
        Self {
            busy: 0,
            last: 0,
            taken: 0,
            watched: false,
            telling: Vec::new(),
            waiting: VecDeque::new(),
        }
    }
}

impl<C: Carrier> Lanes<C> {
    /// An empty queue.
    pub fn new(carrier: C, limits: LaneLimits) -> Arc<Self> {
        Arc::new(Self { carrier, limits, queue: Mutex::default() })
    }

    /// Takes a step, alone or with others.
    ///
    /// # Errors
    ///
    /// What the carrier says, and if the runtime ends that it runs on.
    pub async fn apply(self: &Arc<Self>, load: C::Load) -> StoreResult<C::Answer> {
        let (caller, answer) = oneshot::channel();
        if self.enter(Waiting { load, caller: Caller(caller) }) {
            self.serve();
        }
        answer.await.unwrap_or_else(|_| {
            let message = "what took this step to the store has ended";
            Err(StoreError::maybe_applied(StoreErrorKind::Stopped, message))
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue<C>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more who waits; whether a lane was free, and is taken now.
    fn enter(&self, waiting: Waiting<C>) -> bool {
        let LaneLimits { alone, at_most, together, .. } = self.limits;
        let mut queue = self.queue();
        queue.waiting.push_back(waiting);
        let lanes = match queue.last {
            _ if queue.waiting.len() >= together => at_most,
            0 | 1 => alone,
            _ => 1,
        };
        let free = queue.busy < lanes;
        queue.busy += usize::from(free);
        free
    }

    /// Frees the lane if nobody waits.
    fn close(&self) -> bool {
        let mut queue = self.queue();
        let closed = queue.waiting.is_empty();
        queue.busy -= usize::from(closed);
        closed
    }

    /// Those who go next.
    fn next(&self) -> Vec<Waiting<C>> {
        let mut queue = self.queue();
        let (mut going, mut left) = (Vec::new(), Vec::new());
        while going.len() < self.limits.together
            && let Some(waiting) = queue.waiting.pop_front()
        {
            // Whoever has stopped waiting was not served, and never is.
            if waiting.caller.is_gone() {
                continue;
            }
            let goes = self.carrier.joins(&going, &waiting.load);
            if goes { going.push(waiting) } else { left.push(waiting) }
        }
        left.into_iter().rev().for_each(|waiting| queue.waiting.push_front(waiting));
        queue.last = going.len();
        queue.taken = queue.taken.wrapping_add(1);
        going
    }

    /// Takes those who wait as soon as there is a way.
    async fn carry(&self) {
        let way = self.carrier.way().await;
        let going = self.next();
        if !going.is_empty() {
            let told = self.carrier.carry(way, going).await;
            self.tell(told);
        }
    }

    /// Serves those who wait, in a lane that was taken.
    fn serve(self: &Arc<Self>) {
        self.watch();
        tokio::spawn(Serving { lanes: Arc::clone(self), done: false }.serve());
    }
}

impl<C: Carrier> fmt::Debug for Lanes<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl<C: Carrier + ?Sized> fmt::Debug for Waiting<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

impl<A> fmt::Debug for Caller<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("is_gone", &self.is_gone()).finish()
    }
}

/// A lane that serves those who wait until nobody does.
struct Serving<C: Carrier> {
    lanes: Arc<Lanes<C>>,
    done: bool,
}

impl<C: Carrier> Serving<C> {
    async fn serve(mut self) {
        loop {
            // Whoever was woken together with the last one is about to ask as well.
            tokio::task::yield_now().await;
            if self.lanes.close() {
                self.done = true;
                return;
            }
            self.lanes.carry().await;
        }
    }
}

impl<C: Carrier> Drop for Serving<C> {
    /// Its runtime ends, or it panicked: those who wait are told, as nobody may be left to serve
    /// them.
    fn drop(&mut self) {
        if !self.done {
            let mut queue = self.lanes.queue();
            queue.busy -= 1;
            queue.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests;
