//! How steps wait for each other, and go together.

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
    /// There is a way while this has a permit.
    road: Semaphore,
}

impl Carrier for Server {
    type Load = u32;
    type Answer = u32;
    type Way = ();

    /// No odd number goes with an even one.
    fn joins(&self, going: &[Waiting<Self>], next: &u32) -> bool {
        going.first().is_none_or(|first| first.load % 2 == next % 2)
    }

    async fn way(&self) -> StoreResult<()> {
        self.road
            .acquire()
            .await
            .map(drop)
            .map_err(|_| StoreError::not_applied(StoreErrorKind::Unavailable, "there is no way"))
    }

    async fn carry(&self, way: StoreResult<()>, going: Vec<Waiting<Self>>) -> Told<u32> {
        if let Err(error) = way {
            return going.into_iter().map(|one| (one.caller, Err(error.clone()))).collect();
        }
        let loads: Vec<_> = going.iter().map(|waiting| waiting.load).collect();
        assert!(!loads.contains(&13), "thirteen");
        self.carried.lock().unwrap().push(loads);
        self.gate.acquire().await.unwrap().forget();
        going.into_iter().map(|Waiting { load, caller }| (caller, Ok(load / 2))).collect()
    }
}

fn lanes(alone: usize, at_most: usize, together: usize) -> Arc<Lanes<Server>> {
    let server = Server {
        carried: Mutex::default(),
        gate: Semaphore::new(0),
        road: Semaphore::new(at_most),
    };
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
async fn whoever_stops_waiting_while_there_is_no_way_is_not_taken() {
    let lanes = lanes(1, 2, 64);
    assert_eq!(lanes.carrier.road.forget_permits(2), 2);
    let (gone, stays) = (lanes.ask(2), lanes.ask(4));
    sleep(10 * PATIENCE).await; // tidy: allow-sleep: the clock stands still
    let late = lanes.ask(6);
    gone.abort();
    settle().await;
    lanes.carrier.road.add_permits(1);
    lanes.let_through(2);
    assert_eq!(stays.await.unwrap().unwrap(), 2);
    assert_eq!(late.await.unwrap().unwrap(), 3);
    assert_eq!(lanes.carried(), [[4, 6]]);
}

#[tokio::test(start_paused = true)]
async fn without_a_way_all_are_told_and_the_next_ones_ask_for_it_again() {
    let lanes = lanes(1, 1, 64);
    lanes.carrier.road.close();
    for _ in 0..2 {
        for asked in [2, 4].map(|load| lanes.ask(load)) {
            let error = asked.await.unwrap().unwrap_err();
            assert_eq!(error.effect(), Effect::NotApplied);
        }
    }
    settle().await;
    assert!(lanes.carried().is_empty());
    assert_eq!(lanes.queue().busy, 0);
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

#[tokio::test(start_paused = true)]
async fn nobody_looks_when_there_is_nothing_to_look_after() {
    let lanes = lanes(1, 2, 64);
    let asked = lanes.ask(2);
    settle().await;
    assert!(lanes.queue().watched);
    lanes.let_through(1);
    asked.await.unwrap().unwrap();
    sleep(3 * PATIENCE).await; // tidy: allow-sleep: the clock stands still
    assert!(!lanes.queue().watched);
    assert_eq!(lanes.queue().busy, 0);
}

#[test]
fn those_who_wait_are_looked_after_although_another_runtime_ended() {
    let lanes = lanes(1, 2, 64);
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    runtime().block_on(async {
        let _hangs = lanes.ask(2);
        settle().await;
        assert!(lanes.queue().watched);
    });
    assert!(!lanes.queue().watched);
    runtime().block_on(async {
        let hangs = lanes.ask(4);
        settle().await;
        let second = lanes.ask(6);
        sleep(3 * PATIENCE).await; // tidy: allow-sleep: the clock stands still
        assert_eq!(lanes.carried(), [[2], [4], [6]]);
        lanes.let_through(2);
        assert_eq!(hangs.await.unwrap().unwrap(), 2);
        assert_eq!(second.await.unwrap().unwrap(), 3);
    });
}

/// Two callers, and what to tell them.
fn pair() -> (Told<u32>, [oneshot::Receiver<StoreResult<u32>>; 2]) {
    let (one, hears_one) = oneshot::channel();
    let (other, hears_other) = oneshot::channel();
    (vec![(Caller(one), Ok(1)), (Caller(other), Ok(2))], [hears_one, hears_other])
}

fn assert_heard(mut hears: [oneshot::Receiver<StoreResult<u32>>; 2]) {
    for (hears, answer) in hears.iter_mut().zip(1..) {
        assert_eq!(hears.try_recv().unwrap().unwrap(), answer);
    }
}

#[tokio::test]
async fn callers_who_are_told_together_hear_each_their_own() {
    let (told, [one, other]) = pair();
    lanes(1, 1, 2).tell(told);
    assert_eq!(one.await.unwrap().unwrap(), 1);
    assert_eq!(other.await.unwrap().unwrap(), 2);
}

#[tokio::test]
async fn a_caller_who_is_gone_does_not_keep_the_other_from_hearing() {
    let (told, [one, other]) = pair();
    drop(one);
    lanes(1, 1, 2).tell(told);
    assert_eq!(other.await.unwrap().unwrap(), 2);
}

#[test]
fn callers_are_told_without_a_runtime_and_when_it_ends() {
    let lanes = lanes(1, 1, 2);
    let (told, hears) = pair();
    lanes.tell(told);
    assert_heard(hears);
    let (told, hears) = pair();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { lanes.tell(told) });
    drop(runtime);
    assert_heard(hears);
}

/// The worker that has the answers does nothing else for as long as the test wants.
#[test]
fn callers_are_told_although_a_handler_blocks_the_worker_that_has_the_answers() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_time().build().unwrap();
    let lanes = lanes(1, 1, 2);
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    // As while a command is under way.
    lanes.queue().busy = 1;
    runtime.block_on(async { lanes.watch() });
    let ((told, hears), taken) = (pair(), Arc::clone(&lanes));
    let handler = runtime.spawn(async move {
        taken.tell(told);
        blocked.recv().unwrap();
    });
    let heard = runtime.block_on(async {
        let [one, other] = hears;
        let both = async { (one.await.unwrap().unwrap(), other.await.unwrap().unwrap()) };
        tokio::time::timeout(Duration::from_secs(20), both).await
    });
    release.send(()).unwrap();
    runtime.block_on(handler).unwrap();
    assert_eq!(heard.unwrap(), (1, 2));
}
