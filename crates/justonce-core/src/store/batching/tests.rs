//! How requests are queued, batched and answered.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::queue::*;
use crate::error::{Effect, StoreError, StoreErrorKind, StoreResult};
use crate::outcome::Outcome;

const MAX_WAIT: Duration = Duration::from_millis(5);

/// A server that halves numbers. Each command waits for a permit.
struct Server {
    executed: Mutex<Vec<Vec<u32>>>,
    gate: Semaphore,
    /// There is a connection while this has a permit.
    connections: Semaphore,
}

impl BatchExecutor for Server {
    type Request = u32;
    type Reply = u32;
    type Connection = ();

    /// Odd and even numbers are not mixed.
    fn fits(&self, batch: &[Pending<Self>], next: &u32) -> bool {
        batch.first().is_none_or(|first| first.request % 2 == next % 2)
    }

    async fn connect(&self) -> StoreResult<()> {
        self.connections
            .acquire()
            .await
            .map(drop)
            .map_err(|_| StoreError::not_applied(StoreErrorKind::Unavailable, "no connection"))
    }

    async fn execute(
        &self,
        connection: StoreResult<()>,
        batch: Vec<Pending<Self>>,
    ) -> Replies<u32> {
        if let Err(error) = connection {
            return batch.into_iter().map(|one| (one.reply_to, Err(error.clone()))).collect();
        }
        let requests: Vec<_> = batch.iter().map(|pending| pending.request).collect();
        assert!(!requests.contains(&13), "thirteen");
        self.executed.lock().unwrap().push(requests);
        self.gate.acquire().await.unwrap().forget();
        batch.into_iter().map(|Pending { request, reply_to }| (reply_to, Ok(request / 2))).collect()
    }
}

fn queue_with(
    unbatched: usize,
    max_in_flight: usize,
    max_batch: usize,
) -> Arc<RuntimeQueue<Server>> {
    let server = Server {
        executed: Mutex::default(),
        gate: Semaphore::new(0),
        connections: Semaphore::new(max_in_flight),
    };
    RuntimeQueue::new(
        Arc::new(server),
        BatchLimits { unbatched, max_in_flight, max_batch, max_wait: MAX_WAIT },
    )
}

impl RuntimeQueue<Server> {
    fn send(self: &Arc<Self>, request: u32) -> JoinHandle<StoreResult<u32>> {
        let queue = Arc::clone(self);
        tokio::spawn(async move { queue.call(request).await })
    }

    fn permit(&self, commands: usize) {
        self.executor.gate.add_permits(commands);
    }

    fn executed(&self) -> Vec<Vec<u32>> {
        self.executor.executed.lock().unwrap().clone()
    }
}

/// Lets all other tasks run as far as they can, in no time.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn large_bodies_and_large_headers_are_not_batched() {
    let with = |body: usize, header: usize| {
        let builder = Outcome::builder().header("x", vec![b'x'; header]);
        builder.body(vec![b'x'; body]).build().unwrap()
    };
    assert!(may_batch(&Outcome::empty()) && may_batch(&with(8_000, 8_000)));
    assert!(!may_batch(&with(17_000, 0)) && !may_batch(&with(0, 17_000)));
}

#[tokio::test(start_paused = true)]
async fn the_first_is_sent_at_once_and_those_behind_it_are_batched() {
    let queue = queue_with(1, 8, 3);
    let first = queue.send(2);
    settle().await;
    let others = [4, 6].map(|request| queue.send(request));
    settle().await;
    assert_eq!(queue.executed(), [[2]]);
    queue.permit(2);
    assert_eq!(first.await.unwrap().unwrap(), 1);
    for (other, half) in others.into_iter().zip([2, 3]) {
        assert_eq!(other.await.unwrap().unwrap(), half);
    }
    assert_eq!(queue.executed(), [vec![2], vec![4, 6]]);
}

#[tokio::test(start_paused = true)]
async fn a_few_commands_run_beside_each_other_until_requests_are_batched() {
    let queue = queue_with(2, 8, 64);
    let mut sent = vec![queue.send(2)];
    settle().await;
    sent.push(queue.send(4));
    settle().await;
    sent.extend([6, 8].map(|request| queue.send(request)));
    settle().await;
    assert_eq!(queue.executed(), [[2], [4]]);
    queue.permit(2);
    settle().await;
    assert_eq!(queue.executed(), [vec![2], vec![4], vec![6, 8]]);
    // One more could be in flight, but the last batch had two.
    sent.push(queue.send(10));
    settle().await;
    assert_eq!(queue.executed().len(), 3);
    queue.permit(2);
    for sent in sent {
        sent.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_does_not_wait() {
    let queue = queue_with(1, 2, 3);
    let sent: Vec<_> = (0..8).map(|request| queue.send(2 * request)).collect();
    settle().await;
    assert_eq!(queue.executed(), [[0, 2, 4], [6, 8, 10]]);
    queue.permit(3);
    for (request, sent) in (0..).zip(sent) {
        assert_eq!(sent.await.unwrap().unwrap(), request);
    }
    assert_eq!(queue.executed().last().unwrap(), &[12, 14]);
}

#[tokio::test(start_paused = true)]
async fn after_the_longest_wait_a_request_is_sent_beside_a_command_that_hangs() {
    let queue = queue_with(1, 2, 64);
    let first = queue.send(2);
    settle().await;
    let (second, began) = (queue.send(4), Instant::now());
    while queue.executed().len() < 2 {
        sleep(Duration::from_millis(1)).await; // tidy: allow-sleep: the clock stands still
    }
    let waited = began.elapsed();
    assert!((MAX_WAIT..3 * MAX_WAIT).contains(&waited), "{waited:?}");
    // No more than two are in flight.
    let third = queue.send(6);
    sleep(10 * MAX_WAIT).await; // tidy: allow-sleep: the clock stands still
    assert_eq!(queue.executed().len(), 2);
    queue.permit(3);
    for sent in [first, second, third] {
        sent.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_goes_into_the_next_batch() {
    let queue = queue_with(1, 1, 2);
    let first = queue.send(2);
    settle().await;
    let others: Vec<_> = [4, 5, 6, 7].into_iter().map(|request| queue.send(request)).collect();
    settle().await;
    queue.permit(3);
    first.await.unwrap().unwrap();
    for other in others {
        other.await.unwrap().unwrap();
    }
    assert_eq!(queue.executed(), [vec![2], vec![4, 6], vec![5, 7]]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_not_sent() {
    let queue = queue_with(1, 1, 64);
    let first = queue.send(2);
    settle().await;
    let (cancelled, stays) = (queue.send(4), queue.send(6));
    settle().await;
    cancelled.abort();
    settle().await;
    queue.permit(2);
    assert_eq!(first.await.unwrap().unwrap(), 1);
    assert_eq!(stays.await.unwrap().unwrap(), 3);
    assert_eq!(queue.executed(), [[2], [6]]);
}

#[tokio::test(start_paused = true)]
async fn a_call_cancelled_while_there_is_no_connection_is_not_sent() {
    let queue = queue_with(1, 2, 64);
    assert_eq!(queue.executor.connections.forget_permits(2), 2);
    let (cancelled, stays) = (queue.send(2), queue.send(4));
    sleep(10 * MAX_WAIT).await; // tidy: allow-sleep: the clock stands still
    let late = queue.send(6);
    cancelled.abort();
    settle().await;
    queue.executor.connections.add_permits(1);
    queue.permit(2);
    assert_eq!(stays.await.unwrap().unwrap(), 2);
    assert_eq!(late.await.unwrap().unwrap(), 3);
    assert_eq!(queue.executed(), [[4, 6]]);
}

#[tokio::test(start_paused = true)]
async fn without_a_connection_all_fail_and_the_next_ones_try_again() {
    let queue = queue_with(1, 1, 64);
    queue.executor.connections.close();
    for _ in 0..2 {
        for sent in [2, 4].map(|request| queue.send(request)) {
            let error = sent.await.unwrap().unwrap_err();
            assert_eq!(error.effect(), Effect::NotApplied);
        }
    }
    settle().await;
    assert!(queue.executed().is_empty());
    assert_eq!(queue.state().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn calls_behind_a_panic_fail_and_the_next_one_succeeds() {
    let queue = queue_with(1, 1, 64);
    let unlucky = [12, 13].map(|request| queue.send(request));
    settle().await;
    queue.permit(1);
    let [even, odd] = unlucky;
    assert_eq!(even.await.unwrap().unwrap(), 6);
    let error = odd.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Stopped);
    assert_eq!(error.effect(), Effect::MayHaveBeenApplied);
    queue.permit(1);
    assert_eq!(queue.call(4).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_ends_with_the_last_command() {
    let queue = queue_with(1, 2, 64);
    let sent = queue.send(2);
    settle().await;
    assert!(queue.state().is_watched);
    queue.permit(1);
    sent.await.unwrap().unwrap();
    sleep(3 * MAX_WAIT).await; // tidy: allow-sleep: the clock stands still
    assert!(!queue.state().is_watched);
    assert_eq!(queue.state().in_flight, 0);
}

#[test]
fn the_watchdog_restarts_after_its_runtime_ended() {
    let queue = queue_with(1, 2, 64);
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    runtime().block_on(async {
        let _hangs = queue.send(2);
        settle().await;
        assert!(queue.state().is_watched);
    });
    assert!(!queue.state().is_watched);
    runtime().block_on(async {
        let hangs = queue.send(4);
        settle().await;
        let second = queue.send(6);
        sleep(3 * MAX_WAIT).await; // tidy: allow-sleep: the clock stands still
        assert_eq!(queue.executed(), [[2], [4], [6]]);
        queue.permit(2);
        assert_eq!(hangs.await.unwrap().unwrap(), 2);
        assert_eq!(second.await.unwrap().unwrap(), 3);
    });
}

/// Two replies, and where they arrive.
fn pair() -> (Replies<u32>, [oneshot::Receiver<StoreResult<u32>>; 2]) {
    let (one, from_one) = oneshot::channel();
    let (other, from_other) = oneshot::channel();
    (vec![(ReplyTo::of(one), Ok(1)), (ReplyTo::of(other), Ok(2))], [from_one, from_other])
}

fn assert_replies(mut replied: [oneshot::Receiver<StoreResult<u32>>; 2]) {
    for (replied, answer) in replied.iter_mut().zip(1..) {
        assert_eq!(replied.try_recv().unwrap().unwrap(), answer);
    }
}

#[tokio::test]
async fn replies_delivered_together_reach_their_own_callers() {
    let (replies, [one, other]) = pair();
    queue_with(1, 1, 2).notify(replies);
    assert_eq!(one.await.unwrap().unwrap(), 1);
    assert_eq!(other.await.unwrap().unwrap(), 2);
}

#[tokio::test]
async fn a_cancelled_call_does_not_stop_the_other_reply() {
    let (replies, [one, other]) = pair();
    drop(one);
    queue_with(1, 1, 2).notify(replies);
    assert_eq!(other.await.unwrap().unwrap(), 2);
}

#[test]
fn replies_arrive_without_a_runtime_and_when_it_ends() {
    let queue = queue_with(1, 1, 2);
    let (replies, replied) = pair();
    queue.notify(replies);
    assert_replies(replied);
    let (replies, replied) = pair();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { queue.notify(replies) });
    drop(runtime);
    assert_replies(replied);
}

/// The worker that has the replies does nothing else for as long as the test wants.
#[test]
fn replies_arrive_while_a_handler_blocks_the_worker_that_has_them() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_time().build().unwrap();
    let queue = queue_with(1, 1, 2);
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    // As while a command is in flight.
    queue.state().in_flight = 1;
    runtime.block_on(async { queue.watch() });
    let ((replies, replied), taken) = (pair(), Arc::clone(&queue));
    let handler = runtime.spawn(async move {
        taken.notify(replies);
        blocked.recv().unwrap();
    });
    let received = runtime.block_on(async {
        let [one, other] = replied;
        let both = async { (one.await.unwrap().unwrap(), other.await.unwrap().unwrap()) };
        tokio::time::timeout(Duration::from_secs(20), both).await
    });
    release.send(()).unwrap();
    runtime.block_on(handler).unwrap();
    assert_eq!(received.unwrap(), (1, 2));
}

/// One caller's runtime stops in the middle of a command, and then ends.
#[test]
fn requests_of_other_runtimes_neither_wait_for_one_that_is_blocked_nor_end_with_it() {
    let server = Server {
        executed: Mutex::default(),
        gate: Semaphore::new(0),
        connections: Semaphore::new(8),
    };
    let (unbatched, max_in_flight, max_batch) = (1, 1, 64);
    let limits = BatchLimits { unbatched, max_in_flight, max_batch, max_wait: MAX_WAIT };
    let queue = Arc::new(BatchQueue::new(server, limits));
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (blocked, other) = (runtime(), runtime());
    let calls = [2, 4].map(|request| {
        let queue = Arc::clone(&queue);
        blocked.spawn(async move { queue.call(request).await })
    });
    // The first is sent, the second is queued. From now on nothing drives this runtime.
    blocked.block_on(settle());
    // The first permit goes to the command that waits for it.
    queue.executor().gate.add_permits(2);
    assert_eq!(other.block_on(queue.call(6)).unwrap(), 3);
    let queued = other.spawn({
        let queue = Arc::clone(&queue);
        async move { queue.call(8).await }
    });
    other.block_on(settle());
    drop(blocked);
    assert_eq!(other.block_on(queued).unwrap().unwrap(), 4);
    drop(calls);
}
