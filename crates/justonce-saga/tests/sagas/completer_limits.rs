//! What thousands that hang, long reasons, a part of the store that is away, or a panic where a
//! drive is given up must not do: keep others from being driven on, or keep a saga from being seen.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use justonce_core::memory::MemoryStore;
use justonce_core::store::{
    Cursor, Health, ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport,
};
use justonce_core::{
    Answer, BackOff, Checkpoint, ClaimEnd, Engine, Fence, Fingerprint, Key, ManualClock, OnLapsed,
    Operation, Outcome, Policy, RecordId, Scope, Step, StoreError, StoreErrorKind, StoreResult,
};
use justonce_saga::{
    Call, Completer, CompleterSettings, Journal, Log, Phases, PlannedStep, Saga, SagaRan, SagaStep,
    StepError, Tries, stuck,
};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::ground::Ground;

const LOST_AFTER: Duration = Duration::from_secs(10);
const ONCE: Tries = Tries { most: 1, back_off: BackOff::DEFAULT };

fn eager() -> CompleterSettings {
    CompleterSettings {
        every: Duration::from_millis(20),
        unchanged_for: Duration::ZERO,
        ..CompleterSettings::default()
    }
}

const STUBBORN: u64 = 17;

/// Fails for 17 until told to hang, and counts the others.
fn stubborn(hang: &Arc<AtomicBool>, hangs: &Arc<Semaphore>, runs: &Arc<Semaphore>) -> Saga<u64> {
    let (hang, hangs, runs) = (Arc::clone(hang), Arc::clone(hangs), Arc::clone(runs));
    let run = SagaStep::new("run", move |call: Call<u64>| {
        let is_stubborn = *call.context() == STUBBORN;
        let does_hang = is_stubborn && hang.load(Ordering::SeqCst);
        hangs.add_permits(usize::from(does_hang));
        runs.add_permits(usize::from(!is_stubborn));
        async move {
            match (is_stubborn, does_hang) {
                (false, _) => Ok::<(), StepError>(()),
                (true, false) => Err(StepError::passing("no answer")),
                (true, true) => pending().await,
            }
        }
    });
    Saga::builder("order").step(SagaStep::from(run).tries(ONCE)).build().unwrap()
}

/// "What failed before has half of the places at most", and delays fresh ones by a round or two.
#[tokio::test]
async fn more_hanging_sagas_than_a_page_leave_places_for_fresh_ones() {
    let ground = Ground::memory();
    let (runs, hangs) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let hang = Arc::new(AtomicBool::new(false));
    let saga = stubborn(&hang, &hangs, &runs);
    let operation = |number: u64, context: u64| {
        let key = Key::client(format!("order-{number}-{context}")).unwrap();
        saga.operation(Scope::builder(), key, &context).unwrap()
    };
    let engine = ground.engine();
    for number in 0..300 {
        saga.run(&engine, &operation(number, STUBBORN)).await.unwrap();
    }
    hang.store(true, Ordering::SeqCst);
    ground.much_later();
    let settings = CompleterSettings { retry_stuck: Some(Duration::ZERO), ..eager() };
    let completer = Completer::new(&engine, settings).with(saga.clone()).unwrap();
    let _completing = completer.start(|_| {});
    let half = u32::try_from(settings.at_once / 2).unwrap();
    timeout(LOST_AFTER, hangs.acquire_many(half)).await.expect("none was tried").unwrap().forget();
    for number in 0..10 {
        drop(engine.begin(&operation(number, STUBBORN + 1)).await.unwrap());
    }
    ground.much_later();
    let all = timeout(LOST_AFTER, runs.acquire_many(10)).await;
    assert!(all.is_ok(), "{} of 10 fresh sagas were driven", runs.available_permits());
}

/// A saga that cannot be undone is stuck, and everybody can see it, however long the reasons are.
#[tokio::test]
async fn long_reasons_do_not_keep_a_stuck_saga_from_being_seen() {
    let ground = Ground::memory();
    let undone = Arc::new(AtomicU32::new(0));
    let page = || "<p>502 Bad Gateway</p>".repeat(50);
    let mut builder = Saga::<String>::builder("order");
    for number in 0..12 {
        let count = Arc::clone(&undone);
        let step = SagaStep::new(format!("step-{number}"), async |_: Call<String>| Ok(()))
            .undo(move |_| {
                count.fetch_add(1, Ordering::SeqCst);
                std::future::ready(Err(StepError::passing(page())))
            })
            .undo_tries(ONCE);
        builder = builder.step(step);
    }
    let no = SagaStep::new("no", move |_: Call<String>| {
        std::future::ready(Err::<(), _>(StepError::permanent(page())))
    });
    let saga = builder.step(no).build().unwrap();
    // Less than the 248 KiB that a log may have.
    let context = "x".repeat(246 * 1024);
    let key = Key::client("order-17").unwrap();
    let operation = saga.operation(Scope::builder(), key, &context).unwrap();
    let ran = saga.run(&ground.engine(), &operation).await;
    assert!(matches!(ran, Ok(SagaRan::Stuck(_))), "{:?}", ran.map(|_| ()));
    let (found, _) = stuck(&*ground.store, None, None).await.unwrap();
    assert_eq!(found.len(), 1, "it is listed");
    assert_eq!(undone.load(Ordering::SeqCst), 12, "each compensation is tried once");
}

/// A part of the store that cannot be listed: a node of a cluster that is away, for example.
struct HalfAway {
    inner: MemoryStore,
    away: AtomicBool,
}

impl Records for HalfAway {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        self.inner.apply(step).await
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        self.inner.get(id).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.inner.settled(id, fence).await
    }
}

impl Maintenance for HalfAway {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        // A page of the first half ends where the second begins.
        let half = Cursor(RecordId::from_bytes([0x80; 32]));
        let is_behind = query.after.is_some_and(|Cursor(after)| after >= half.0);
        if is_behind && self.away.load(Ordering::SeqCst) {
            let away = "injected: the node does not answer";
            return Err(StoreError::not_applied(StoreErrorKind::Unavailable, away));
        }
        let mut page = self.inner.list(query).await?;
        if !is_behind && page.records.last().is_none_or(|last| last.id > half.0) {
            page.records.retain(|record| record.id <= half.0);
            page.next = Some(half);
        }
        Ok(page)
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.inner.stats().await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.inner.sweep(limit).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.inner.ready().await
    }

    async fn health(&self) -> StoreResult<Health> {
        self.inner.health().await
    }
}

/// What could be listed is driven on, also while the rest cannot be listed.
#[tokio::test]
async fn a_part_of_the_store_that_is_away_keeps_no_saga_elsewhere_waiting() {
    let clock = ManualClock::default();
    let inner = MemoryStore::new(clock.clone());
    let store = HalfAway { inner, away: AtomicBool::new(true) };
    let engine = Engine::builder(store).background(tokio::runtime::Handle::current()).build();
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let run = SagaStep::new("run", move |_: Call<u64>| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok::<(), StepError>(()))
    });
    let saga = Saga::builder("order").step(run).build().unwrap();
    let mut here = 0;
    for number in 0..40 {
        let key = Key::client(format!("order-{number}")).unwrap();
        let operation = saga.operation(Scope::builder(), key, &17).unwrap();
        here += u32::from(operation.id() <= RecordId::from_bytes([0x80; 32]));
        drop(engine.begin(&operation).await.unwrap());
    }
    clock.advance(Duration::from_secs(3600));
    let completer = Completer::new(&engine, eager()).with(saga).unwrap();
    for _ in 0..10 {
        completer.round().await;
    }
    assert!(here > 0);
    assert_eq!(runs.load(Ordering::SeqCst), here, "all that can be listed are driven on");
}

/// Panics when it is dropped before it is done.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "on purpose: dropped where it waits");
    }
}

/// A drive that is given up gives its place back, whatever its step does when it is dropped.
#[tokio::test]
async fn a_step_that_panics_when_it_is_given_up_gives_its_place_back() {
    let ground = Ground::memory();
    let runs = Arc::new(Semaphore::new(0));
    let count = Arc::clone(&runs);
    let run = SagaStep::new("run", move |_: Call<u64>| {
        count.add_permits(1);
        async {
            let _bomb = Bomb;
            pending::<Result<(), StepError>>().await
        }
    });
    let saga = Saga::builder("order").step(run).build().unwrap();
    let key = Key::client("order-17").unwrap();
    let operation = saga.operation(Scope::builder(), key, &17).unwrap();
    drop(ground.engine().begin(&operation).await.unwrap());
    ground.much_later();
    let settings = CompleterSettings { drive_timeout: Duration::from_millis(50), ..eager() };
    let completer = Completer::new(&ground.engine(), settings).with(saga).unwrap();
    let told = async {
        loop {
            let round = completer.round().await;
            ground.much_later();
            if !round.troubles.is_empty() {
                break;
            }
        }
    };
    timeout(LOST_AFTER, told).await.expect("nobody is told that it was given up");
    let again = async {
        while runs.available_permits() < 2 {
            completer.round().await;
            ground.much_later();
        }
    };
    timeout(LOST_AFTER, again).await.expect("it is not driven again");
}

/// The version before kept logs of up to 256 KiB. What it began goes on, if it does not grow.
#[tokio::test]
async fn a_large_log_of_the_version_before_goes_on() {
    let ground = Ground::memory();
    let undo = async |_: Call<String>| Ok(());
    let saga = Saga::<String>::builder("order")
        .step(SagaStep::new("charge", async |_: Call<String>| Ok(())).undo(undo))
        .step(SagaStep::new("ship", async |_: Call<String>| Ok(())))
        .build()
        .unwrap();
    let plan = [
        PlannedStep { name: "charge".into(), group: 0, undo: true },
        PlannedStep { name: "ship".into(), group: 1, undo: false },
    ];
    // As its `Saga::operation` stored it with the claim.
    let context = "x".repeat(252 * 1024);
    let log = Log::new("order", &plan, &context).unwrap();
    let point = Checkpoint::new("asked", log.data().unwrap()).unwrap();
    let small = saga.operation(Scope::builder(), Key::client("order-17").unwrap(), &String::new());
    let small = small.unwrap();
    let asked = serde_json::to_vec(&context).unwrap();
    let fingerprint = Fingerprint::of_json(small.scope(), &asked);
    let operation = Operation::new(small.scope().clone(), small.key().clone(), fingerprint)
        .with_policy(std::sync::Arc::clone(small.policy()))
        .starting_from(point);
    let ran = saga.run(&ground.engine(), &operation).await;
    assert!(matches!(ran, Ok(SagaRan::Ended(_))), "{:?}", ran.map(|_| ()));
}

/// And so do its phases.
#[tokio::test]
async fn a_large_journal_of_the_version_before_goes_on() {
    let ground = Ground::memory();
    let policy = Policy::builder().on_lapsed(OnLapsed::Resume).max_attempts(None).build().unwrap();
    let scope = Scope::builder().operation("signup").build().unwrap();
    let operation =
        Operation::without_fingerprint(scope, Key::client("ada").unwrap()).with_policy(policy);
    let names = ["welcome", "bill", "greet"].map(String::from);
    let journal = Journal::new(&names).asked(&"x".repeat(252 * 1024)).unwrap();
    let point = Checkpoint::new("asked", journal.data().unwrap()).unwrap();
    let operation = operation.starting_from(point);
    let phases = Phases::new(names).unwrap();
    let ran = phases
        .run(&ground.engine(), &operation, async |mut run| {
            run.phase("welcome", async |_| Ok(())).await?;
            run.phase("bill", async |_| Ok(())).await?;
            run.phase("greet", async |_| Ok(())).await?;
            Ok(Outcome::bytes("done"))
        })
        .await;
    assert_eq!(ran.unwrap().outcome(), Some(&Outcome::bytes("done")));
}
