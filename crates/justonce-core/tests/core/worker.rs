//! The background worker: starts, stops, failures, panics and wake-ups.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use justonce_core::BackOff;
use justonce_core::worker::{Next, RoundEnd, Schedule, Worker, WorkerObserver};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn schedule() -> Schedule {
    Schedule::every("test", 8 * SECOND)
}

/// When a round ended, its error, and how many had failed in a row.
type End = (Instant, Option<String>, u32);

/// Ends of rounds, as an observer sees them.
struct Ends(mpsc::UnboundedSender<End>);

impl WorkerObserver for Ends {
    fn round_ended(&self, end: &RoundEnd<'_>) {
        assert_eq!(end.worker, "test");
        let error = end.error.map(str::to_owned);
        let _ = self.0.send((Instant::now(), error, end.consecutive_failures));
    }
}

fn observer() -> (Arc<Ends>, mpsc::UnboundedReceiver<End>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Arc::new(Ends(sender)), receiver)
}

#[tokio::test(start_paused = true)]
async fn rounds_follow_each_other_after_a_pause_and_at_once_while_there_is_more() {
    let (observer, mut ends) = observer();
    let mut left = 2;
    let work = move || {
        left -= i32::from(left > 0);
        let next = if left > 0 { Next::More } else { Next::Pause };
        async move { Ok::<_, String>(next) }
    };
    let start = Instant::now();
    let worker = Worker::start(schedule().between(SECOND).observer(observer), work);
    for seconds in [0, 1, 9, 17] {
        let (at, error, failures) = ends.recv().await.unwrap();
        assert_eq!((at - start, error, failures), (seconds * SECOND, None, 0));
    }
    let health = worker.health();
    assert_eq!((health.rounds, health.failures), (4, 0));
    assert_eq!(health.last_run, Some(Duration::ZERO));
    assert_eq!(health.running_for, None);
}

#[tokio::test(start_paused = true)]
async fn pauses_lie_between_half_and_all_of_the_schedule() {
    let (observer, mut ends) = observer();
    let mut drawn = [0, u32::MAX].into_iter();
    let schedule = schedule().jitter(move || drawn.next().unwrap_or(0)).observer(observer);
    let start = Instant::now();
    let _worker = Worker::start(schedule, || async { Ok::<_, String>(Next::Pause) });
    for seconds in [0, 4, 12, 16] {
        assert_eq!(ends.recv().await.unwrap().0 - start, seconds * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_and_show_in_health_until_a_round_succeeds() {
    let (observer, mut ends) = observer();
    let mut round = 0;
    let work = move || {
        round += 1;
        let failed = round <= 4;
        async move { if failed { Err(format!("failure {round}")) } else { Ok(Next::Pause) } }
    };
    let back_off = BackOff { first: SECOND, max: 3 * SECOND };
    let start = Instant::now();
    let worker = Worker::start(schedule().back_off(back_off).observer(observer), work);
    for (seconds, round) in [(0, 1), (1, 2), (3, 3), (6, 4)] {
        let (at, error, failures) = ends.recv().await.unwrap();
        assert_eq!((at - start, failures), (seconds * SECOND, round));
        assert_eq!(error, Some(format!("failure {round}")));
    }
    assert_eq!(worker.health().consecutive_failures, 4);
    let (at, error, failures) = ends.recv().await.unwrap();
    assert_eq!((at - start, error, failures), (9 * SECOND, None, 0));
    let health = worker.health();
    assert_eq!((health.rounds, health.failures, health.consecutive_failures), (5, 4, 0));
    assert_eq!(health.last_error.as_deref(), Some("failure 4"));
}

/// An error that cannot be shown.
struct Undisplayable;

impl std::fmt::Display for Undisplayable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("an error panics while it is shown")
    }
}

#[tokio::test(start_paused = true)]
async fn a_round_that_panics_is_counted_and_the_next_one_comes() {
    let (observer, mut ends) = observer();
    let mut round = 0;
    let work = move || {
        round += 1;
        // One panics before there is a future, one in it, and one while its error is shown.
        assert!(round != 1, "a round panics");
        async move {
            assert!(round != 2, "a round panics");
            if round == 3 { Err(Undisplayable) } else { Ok(Next::Pause) }
        }
    };
    let start = Instant::now();
    let worker = Worker::start(schedule().observer(observer), work);
    for (seconds, expected) in [(0, 1), (8, 2), (16, 3), (24, 0)] {
        let (at, error, failures) = ends.recv().await.unwrap();
        assert_eq!((at - start, failures), (seconds * SECOND, expected));
        assert_eq!(error.is_some(), expected > 0);
    }
    let health = worker.health();
    assert_eq!((health.rounds, health.failures), (4, 3));
    assert_eq!(health.last_error.as_deref(), Some("the round panicked"));
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_does_not_end_the_work() {
    struct Panics;
    impl WorkerObserver for Panics {
        fn round_ended(&self, _: &RoundEnd<'_>) {
            panic!("an observer panics");
        }
    }
    let (sender, mut rounds) = mpsc::unbounded_channel();
    let work = move || {
        let _ = sender.send(());
        async { Ok::<_, String>(Next::Pause) }
    };
    let _worker = Worker::start(schedule().observer(Arc::new(Panics)), work);
    rounds.recv().await.unwrap();
    rounds.recv().await.unwrap();
}

/// A worker whose rounds say when they begin, and wait for a permit; and how many have ended.
fn gated() -> (Worker, mpsc::UnboundedReceiver<()>, Arc<Semaphore>, Arc<AtomicUsize>) {
    let (sender, begun) = mpsc::unbounded_channel();
    let (gate, ended) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (permits, count) = (Arc::clone(&gate), Arc::clone(&ended));
    let work = move || {
        let _ = sender.send(());
        let (permits, count) = (Arc::clone(&permits), Arc::clone(&count));
        async move {
            if let Ok(permit) = permits.acquire().await {
                permit.forget();
            }
            count.fetch_add(1, Ordering::SeqCst);
            Ok::<_, String>(Next::More)
        }
    };
    (Worker::start(schedule(), work), begun, gate, ended)
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_round_that_runs_and_begins_no_other() {
    let (worker, mut begun, gate, ended) = gated();
    begun.recv().await.unwrap();
    assert_eq!(worker.health().running_for, Some(Duration::ZERO));
    let stopped = tokio::spawn(worker.stop(SECOND));
    tokio::task::yield_now().await;
    gate.add_permits(2);
    assert!(stopped.await.unwrap());
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    assert!(begun.recv().await.is_none(), "the work is dropped");
}

#[tokio::test(start_paused = true)]
async fn a_stop_gives_up_a_round_that_does_not_end() {
    let (worker, mut begun, _gate, ended) = gated();
    begun.recv().await.unwrap();
    let start = Instant::now();
    assert!(!worker.stop(SECOND).await);
    assert_eq!(start.elapsed(), SECOND);
    assert!(begun.recv().await.is_none(), "the round is dropped where it waits");
    assert_eq!(ended.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_pause_at_once() {
    let (observer, mut ends) = observer();
    let idle = || async { Ok::<_, String>(Next::Pause) };
    let worker = Worker::start(schedule().observer(observer), idle);
    ends.recv().await.unwrap();
    let start = Instant::now();
    assert!(worker.stop(SECOND).await);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_worker_drops_its_round() {
    let (worker, mut begun, _gate, ended) = gated();
    begun.recv().await.unwrap();
    drop(worker);
    assert!(begun.recv().await.is_none());
    assert_eq!(ended.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_ends_the_pause_but_not_its_first_eighth() {
    let (observer, mut ends) = observer();
    let idle = || async { Ok::<_, String>(Next::Pause) };
    let start = Instant::now();
    let worker = Worker::start(schedule().observer(observer), idle);
    ends.recv().await.unwrap();
    worker.wake();
    worker.wake();
    for seconds in [1, 9] {
        assert_eq!(ends.recv().await.unwrap().0 - start, seconds * SECOND);
    }
}
