//! A running worker.

use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::health::{History, RoundEnd, WorkerHealth, WorkerObserver};
use super::schedule::Schedule;

/// A wake-up counts once this part of the pause is over: however many there are, the rounds keep
/// some distance.
const WAKES_PER_PAUSE: u32 = 8;
/// The error of a round that panicked. Its message is not repeated: it may name anything.
const PANICKED: &str = "the round panicked";

/// What follows a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There is more to do at once.
    More,
    /// The pause.
    Pause,
}

/// Work that is done in rounds. Every `FnMut() -> impl Future<Output = Result<Next, _>>` is some.
pub trait Rounds: Send + 'static {
    /// Why a round failed.
    type Error: fmt::Display + Send;

    /// Does one round. It is dropped where it waits when the worker is dropped.
    fn round(&mut self) -> impl Future<Output = Result<Next, Self::Error>> + Send;
}

impl<F, R, E> Rounds for F
where
    F: FnMut() -> R + Send + 'static,
    R: Future<Output = Result<Next, E>> + Send,
    E: fmt::Display + Send,
{
    type Error = E;

    fn round(&mut self) -> impl Future<Output = Result<Next, E>> + Send {
        self()
    }
}

/// Work that is repeated in the background. It stops when this is dropped, where it waits.
#[must_use = "a worker stops when it is dropped"]
pub struct Worker {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What the handle and the task share.
struct Shared {
    name: &'static str,
    history: Mutex<History>,
    wake: Notify,
    stop: Notify,
    observer: Option<Arc<dyn WorkerObserver>>,
}

impl Worker {
    /// Starts with a round at once.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(mut schedule: Schedule, work: impl Rounds) -> Self {
        let shared = Arc::new(Shared {
            name: schedule.name,
            history: Mutex::default(),
            wake: Notify::new(),
            stop: Notify::new(),
            observer: schedule.observer.take(),
        });
        let task = tokio::spawn(run(Arc::clone(&shared), schedule, work));
        Self { shared, task }
    }

    /// Ends the pause early. Further wake-ups in one pause count once.
    pub fn wake(&self) {
        self.shared.wake.notify_one();
    }

    /// How the worker is doing.
    #[must_use]
    pub fn health(&self) -> WorkerHealth {
        self.shared.history().health()
    }

    /// Begins no more rounds, and waits for the one that runs; returns whether it ended within the
    /// limit. If not, it is dropped where it waits.
    pub async fn stop(mut self, limit: Duration) -> bool {
        self.shared.stop.notify_one();
        timeout(limit, &mut self.task).await.is_ok()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("name", &self.shared.name)
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a round; returns how many have failed in a row.
    fn ended(&self, error: Option<&str>) -> u32 {
        let (elapsed, consecutive_failures) = self.history().end(error);
        if let Some(observer) = &self.observer {
            let end = RoundEnd { worker: self.name, elapsed, error, consecutive_failures };
            // An observer that panics must not end the work either.
            let _ = catch_unwind(AssertUnwindSafe(|| observer.round_ended(&end)));
        }
        consecutive_failures
    }
}

async fn run(shared: Arc<Shared>, mut schedule: Schedule, mut work: impl Rounds) {
    loop {
        shared.history().begin();
        let result = caught(async { work.round().await }).await;
        let failures = shared.ended(result.as_ref().err().map(String::as_str));
        let pause = async {
            match result {
                Ok(Next::More) => wait(schedule.pause_within_work()).await,
                Ok(Next::Pause) => pause(schedule.pause(), &shared.wake).await,
                Err(_) => pause(schedule.pause_after_failure(failures), &shared.wake).await,
            }
        };
        tokio::select! {
            biased;
            () = shared.stop.notified() => return,
            () = pause => {}
        }
    }
}

/// The result of a round, also if it panics.
async fn caught<E: fmt::Display>(
    round: impl Future<Output = Result<Next, E>>,
) -> Result<Next, String> {
    let mut round = pin!(round);
    let poll = poll_fn(|cx| {
        let poll = || round.as_mut().poll(cx).map_err(|error| error.to_string());
        let polled = catch_unwind(AssertUnwindSafe(poll));
        polled.unwrap_or_else(|_| Poll::Ready(Err(PANICKED.to_owned())))
    });
    poll.await
}

/// Waits for the pause to end, or to be ended early.
async fn pause(pause: Duration, wake: &Notify) {
    let begin = Instant::now();
    sleep_until(begin + pause / WAKES_PER_PAUSE).await;
    // Woken or not, the next thing is a round.
    let _ = timeout_at(begin + pause, wake.notified()).await;
}

/// No timer is set for no pause: the shortest one would last a millisecond.
async fn wait(pause: Duration) {
    if !pause.is_zero() {
        sleep(pause).await;
    }
}
