//! Steps of many callers in as few commands as will do, for backends in which a command costs more
//! than a step.

use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::codec::outcome_size;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::outcome::Outcome;

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

    /// Whether a step may go together with these. Any step may go alone.
    fn joins(&self, going: &[Waiting<Self>], next: &Self::Load) -> bool {
        let _ = (going, next);
        true
    }

    /// Takes steps to the server and tells each caller. There is one at least.
    fn carry(&self, going: Vec<Waiting<Self>>) -> impl Future<Output = ()> + Send;
}

/// A step that waits, and who waits for it.
pub struct Waiting<C: Carrier + ?Sized> {
    /// The step.
    pub load: C::Load,
    /// Who waits.
    pub caller: Caller<C::Answer>,
}

/// Who waits for a step.
pub struct Caller<A>(oneshot::Sender<StoreResult<A>>);

impl<A> Caller<A> {
    /// Whether the caller has stopped waiting.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    /// Tells the caller. One that is gone has left its claim to be given back.
    pub fn tell(self, answer: StoreResult<A>) {
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
    /// How long steps wait for a command. Then another one goes beside it.
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
/// use justonce_core::store::{Carrier, LaneLimits, Lanes, Waiting};
/// use std::time::Duration;
///
/// struct Doubling;
///
/// impl Carrier for Doubling {
///     type Load = u32;
///     type Answer = u32;
///
///     async fn carry(&self, going: Vec<Waiting<Self>>) {
///         for Waiting { load, caller } in going {
///             caller.tell(Ok(2 * load));
///         }
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
    waiting: VecDeque<Waiting<C>>,
}

impl<C: Carrier> Lanes<C> {
    /// An empty queue.
    pub fn new(carrier: C, limits: LaneLimits) -> Arc<Self> {
        let queue = Mutex::new(Queue { busy: 0, last: 0, waiting: VecDeque::new() });
        Arc::new(Self { carrier, limits, queue })
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

    /// Takes one more lane if anybody waits and there is one.
    fn open(&self) -> bool {
        let mut queue = self.queue();
        let opened = !queue.waiting.is_empty() && queue.busy < self.limits.at_most;
        queue.busy += usize::from(opened);
        opened
    }

    /// Those who go next. Without any, the lane is free.
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
        if going.is_empty() {
            queue.busy -= 1;
        } else {
            queue.last = going.len();
        }
        going
    }

    /// Serves those who wait, in a lane that was taken.
    fn serve(self: &Arc<Self>) {
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
            let going = self.lanes.next();
            if going.is_empty() {
                self.done = true;
                return;
            }
            let mut carried = pin!(self.lanes.carrier.carry(going));
            while timeout(self.lanes.limits.patience, &mut carried).await.is_err() {
                if self.lanes.open() {
                    self.lanes.serve();
                }
            }
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
mod tests {
    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::error::Effect;

    const PATIENCE: Duration = Duration::from_millis(5);

    /// A server that halves numbers, and lets a command through when it is told to.
    struct Server {
        carried: Mutex<Vec<Vec<u32>>>,
        gate: Semaphore,
    }

    impl Carrier for Server {
        type Load = u32;
        type Answer = u32;

        /// No odd number goes with an even one.
        fn joins(&self, going: &[Waiting<Self>], next: &u32) -> bool {
            going.first().is_none_or(|first| first.load % 2 == next % 2)
        }

        async fn carry(&self, going: Vec<Waiting<Self>>) {
            let loads: Vec<_> = going.iter().map(|waiting| waiting.load).collect();
            assert!(!loads.contains(&13), "thirteen");
            self.carried.lock().unwrap().push(loads);
            self.gate.acquire().await.unwrap().forget();
            going.into_iter().for_each(|Waiting { load, caller }| caller.tell(Ok(load / 2)));
        }
    }

    fn lanes(alone: usize, at_most: usize, together: usize) -> Arc<Lanes<Server>> {
        let server = Server { carried: Mutex::default(), gate: Semaphore::new(0) };
        Lanes::new(server, LaneLimits { alone, at_most, together, patience: PATIENCE })
    }

    impl Lanes<Server> {
        fn ask(self: &Arc<Self>, load: u32) -> JoinHandle<StoreResult<u32>> {
            let lanes = Arc::clone(self);
            tokio::spawn(async move { lanes.apply(load).await })
        }

        fn let_through(&self, commands: usize) {
            self.carrier.gate.add_permits(commands);
        }

        fn carried(&self) -> Vec<Vec<u32>> {
            self.carrier.carried.lock().unwrap().clone()
        }
    }

    /// Lets all others go as far as they can, in no time.
    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn neither_a_large_body_nor_large_headers_go_with_others() {
        let with = |body: usize, header: usize| {
            let builder = Outcome::builder().header("x", vec![b'x'; header]);
            builder.body(vec![b'x'; body]).build().unwrap()
        };
        assert!(may_share(&Outcome::empty()) && may_share(&with(8_000, 8_000)));
        assert!(!may_share(&with(17_000, 0)) && !may_share(&with(0, 17_000)));
    }

    #[tokio::test(start_paused = true)]
    async fn one_goes_at_once_and_those_who_come_meanwhile_go_together() {
        let lanes = lanes(1, 8, 3);
        let first = lanes.ask(2);
        settle().await;
        let others = [4, 6].map(|load| lanes.ask(load));
        settle().await;
        assert_eq!(lanes.carried(), [[2]]);
        lanes.let_through(2);
        assert_eq!(first.await.unwrap().unwrap(), 1);
        for (other, half) in others.into_iter().zip([2, 3]) {
            assert_eq!(other.await.unwrap().unwrap(), half);
        }
        assert_eq!(lanes.carried(), [vec![2], vec![4, 6]]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_go_beside_each_other_until_steps_go_together() {
        let lanes = lanes(2, 8, 64);
        let mut asked = vec![lanes.ask(2)];
        settle().await;
        asked.push(lanes.ask(4));
        settle().await;
        asked.extend([6, 8].map(|load| lanes.ask(load)));
        settle().await;
        assert_eq!(lanes.carried(), [[2], [4]]);
        lanes.let_through(2);
        settle().await;
        assert_eq!(lanes.carried(), [vec![2], vec![4], vec![6, 8]]);
        // One way is free, but the last ones went together.
        asked.push(lanes.ask(10));
        settle().await;
        assert_eq!(lanes.carried().len(), 3);
        lanes.let_through(2);
        for asked in asked {
            asked.await.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_as_go_together_do_not_wait() {
        let lanes = lanes(1, 2, 3);
        let asked: Vec<_> = (0..8).map(|load| lanes.ask(2 * load)).collect();
        settle().await;
        assert_eq!(lanes.carried(), [[0, 2, 4], [6, 8, 10]]);
        lanes.let_through(3);
        for (load, asked) in (0..).zip(asked) {
            assert_eq!(asked.await.unwrap().unwrap(), load);
        }
        assert_eq!(lanes.carried().last().unwrap(), &[12, 14]);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_waited_long_enough_goes_beside_a_command_that_hangs() {
        let lanes = lanes(1, 2, 64);
        let first = lanes.ask(2);
        settle().await;
        let (second, began) = (lanes.ask(4), Instant::now());
        while lanes.carried().len() < 2 {
            sleep(Duration::from_millis(1)).await; // tidy: allow-sleep: the clock stands still
        }
        let waited = began.elapsed();
        assert!((PATIENCE..3 * PATIENCE).contains(&waited), "{waited:?}");
        // No more than two hang.
        let third = lanes.ask(6);
        sleep(10 * PATIENCE).await; // tidy: allow-sleep: the clock stands still
        assert_eq!(lanes.carried().len(), 2);
        lanes.let_through(3);
        for asked in [first, second, third] {
            asked.await.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_join_goes_next_and_nobody_is_overtaken_for_ever() {
        let lanes = lanes(1, 1, 2);
        let first = lanes.ask(2);
        settle().await;
        let others: Vec<_> = [4, 5, 6, 7].into_iter().map(|load| lanes.ask(load)).collect();
        settle().await;
        lanes.let_through(3);
        first.await.unwrap().unwrap();
        for other in others {
            other.await.unwrap().unwrap();
        }
        assert_eq!(lanes.carried(), [vec![2], vec![4, 6], vec![5, 7]]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_whose_caller_has_gone_is_not_taken() {
        let lanes = lanes(1, 1, 64);
        let first = lanes.ask(2);
        settle().await;
        let (gone, stays) = (lanes.ask(4), lanes.ask(6));
        settle().await;
        gone.abort();
        settle().await;
        lanes.let_through(2);
        assert_eq!(first.await.unwrap().unwrap(), 1);
        assert_eq!(stays.await.unwrap().unwrap(), 3);
        assert_eq!(lanes.carried(), [[2], [6]]);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_behind_a_panic_is_told_and_the_next_one_is_served() {
        let lanes = lanes(1, 1, 64);
        let unlucky = [12, 13].map(|load| lanes.ask(load));
        settle().await;
        lanes.let_through(1);
        let [even, odd] = unlucky;
        assert_eq!(even.await.unwrap().unwrap(), 6);
        let error = odd.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Stopped);
        assert_eq!(error.effect(), Effect::MayHaveBeenApplied);
        lanes.let_through(1);
        assert_eq!(lanes.apply(4).await.unwrap(), 2);
    }
}
