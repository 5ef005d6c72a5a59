//! The worker: works on a store, and says on its standard output what it is about to try, and what
//! was acknowledged.
//!
//! Every key belongs to one task at a time. The kind of an operation and the size of its outcome
//! are part of the key, so that the worker and the check agree on them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use justonce_core::store::{Maintenance as _, Records as _};
use justonce_core::{
    Action, AfterRetention, Answer, Checkpoint, Engine, Failure, FailureKind, Fence, HandlerError,
    Key, ManualClock, OnLapsed, Operation, Outcome, Owner, Policy, Scope, Step, Timestamp, Token,
};
use justonce_embedded::{EmbeddedStore, RowName, RowWrites};

use crate::history::{Said, Seen, Shape};
use crate::random::{Random, hash};

/// When the first process begins.
const START_MS: u64 = 1_800_000_000_000;
/// How long a process lasts by its clock: longer than what is short.
const PROCESS: Duration = Duration::from_secs(24 * 3600);
/// How long a phase lasts by its clock: longer than the short retention and than a lease.
const PHASE: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(300 * 24 * 3600);
/// How many operations are under way at once.
const TASKS: u64 = 6;
const CACHE_BYTES: u64 = 8 * 1024 * 1024;

/// How much one process does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides what is done.
    pub seed: u64,
    /// Which process this is.
    pub process: u64,
    /// How many operations each task begins in each phase.
    pub operations: u64,
    /// Between the phases the store is closed and opened again.
    pub phases: u64,
    /// How it ends.
    pub end: End,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It closes the store.
    Closes,
    /// It is killed in the middle of its last phase.
    Killed,
}

/// The clock of a moment behind all that processes before this one did.
#[must_use]
pub fn clock_of(process: u64) -> ManualClock {
    let start = Timestamp::from_millis(START_MS);
    let before = PROCESS.saturating_mul(u32::try_from(process).unwrap_or(u32::MAX));
    ManualClock::starting_at(start.after(before))
}

/// The operation of a key. A key is `kind/rule/bytes/…`.
///
/// # Errors
///
/// If there is no such key.
pub fn operation(key: &str) -> Result<Operation> {
    let on_lapsed = match key.split('/').nth(1) {
        Some("hold") => OnLapsed::Hold,
        Some("resume") => OnLapsed::Resume,
        Some("rerun") => OnLapsed::Rerun,
        other => bail!("no rule {other:?}"),
    };
    let retention = if is_perishable(key) { SHORT } else { LONG };
    let after = match key.split('/').next() {
        Some("buried" | "perishing-buried") => AfterRetention::Refuse(LONG),
        _ => AfterRetention::New,
    };
    let policy = Policy::builder()
        .on_lapsed(on_lapsed)
        .retention(retention)
        .after_retention(after)
        .build()?;
    let operation = Operation::without_fingerprint(Scope::global(), Key::client(key)?);
    Ok(operation.with_policy(policy))
}

/// Whether the outcome of this key is kept for a short time only.
#[must_use]
pub fn is_perishable(key: &str) -> bool {
    key.starts_with("perishing")
}

/// The outcome of a key under a fence: no two are the same, and none compresses.
#[must_use]
pub fn outcome(key: &str, fence: u64) -> Outcome {
    let bytes = key.split('/').nth(2).and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    Outcome::bytes(Random::seeded(hash(key.as_bytes()), fence).bytes(bytes))
}

/// The row of a key.
///
/// # Errors
///
/// If it is too long.
pub fn row_name(key: &str) -> Result<RowName> {
    Ok(RowName::new("powercut", key)?)
}

/// The row of a key with a number in it.
#[must_use]
pub fn row(key: &str, number: u64) -> Vec<u8> {
    let bytes = key.split('/').nth(2).and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    let filler = Random::seeded(hash(key.as_bytes()), number).bytes(bytes);
    [&number.to_le_bytes(), filler.as_slice()].concat()
}

/// Says a line, in one write.
pub type Say = Arc<dyn Fn(String) + Send + Sync>;

/// One process.
///
/// # Errors
///
/// If the store does not do what it must.
pub fn work(directory: &Path, plan: Plan, say: &Say) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let clock = clock_of(plan.process);
    let settled: Arc<Mutex<Vec<(String, u64)>>> = Arc::default();
    for phase in 0..plan.phases {
        let store = EmbeddedStore::builder(directory)
            .cache_bytes(CACHE_BYTES)
            .clock(clock.clone())
            .open()?;
        let store = Arc::new(store);
        let is_last = phase + 1 == plan.phases;
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let of = (plan.process * 100 + phase) * 100 + task;
                let task = Task {
                    engine: Engine::builder_shared(store.clone()).build(),
                    store: Arc::clone(&store),
                    settled: Arc::clone(&settled),
                    random: Random::seeded(plan.seed, of),
                    say: Arc::clone(say),
                    name: format!("{}-{phase}-{task}", plan.process),
                    is_bulk: task == 0,
                };
                let dies = is_last && plan.end == End::Killed && task.is_bulk;
                runtime.spawn(task.run(plan.operations, dies))
            })
            .collect();
        for task in tasks {
            runtime.block_on(task)??;
        }
        // What has a short retention ends, and claims that were left lapse.
        clock.advance(PHASE);
        while runtime.block_on(store.sweep(1000))?.more {}
        drop(store);
    }
    Ok(())
}

struct Task {
    engine: Engine,
    store: Arc<EmbeddedStore>,
    /// Outcomes of this process, to be given up one day.
    settled: Arc<Mutex<Vec<(String, u64)>>>,
    random: Random,
    say: Say,
    name: String,
    /// Whether it writes little else but large outcomes.
    is_bulk: bool,
}

impl Task {
    async fn run(mut self, operations: u64, dies: bool) -> Result<()> {
        for number in 0..operations {
            if dies && number == operations * 2 / 3 {
                nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::SIGKILL)?;
            }
            self.one(number).await?;
        }
        Ok(())
    }

    fn say(&self, said: Said, key: &str, shape: Shape, row: Option<u64>) {
        (self.say)(format!("{} {key} {}", said.letter(), Seen { shape, row }));
    }

    async fn one(&mut self, number: u64) -> Result<()> {
        let kinds: &[&str] = if self.is_bulk {
            &["completed", "completed", "completed", "rows", "older"]
        } else {
            &[
                "completed",
                "completed",
                "open",
                "saved",
                "released",
                "waiting",
                "failed",
                "erased",
                "expired",
                "buried",
                "perishing",
                "perishing-buried",
                "rows",
                "again",
                "older",
            ]
        };
        let kind = *self.random.one_of(kinds).context("there is no kind")?;
        let rule = *self.random.one_of(&["hold", "hold", "resume", "rerun"]).unwrap_or(&"hold");
        let bytes = match (self.is_bulk, self.random.below(10)) {
            (true, _) => 100_000 + self.random.below(300_000),
            (false, 0..5) => self.random.below(300),
            (false, 5..9) => self.random.below(9000),
            (false, _) => self.random.below(40_000),
        };
        let key = format!("{kind}/{rule}/{bytes}/{}-{number}", self.name);
        match kind {
            "rows" => self.rows(&key).await,
            "older" => self.give_up_older().await,
            _ => self.operation(kind, &key).await,
        }
    }

    /// Begins and ends an operation, as its kind wants it.
    async fn operation(&mut self, kind: &str, key: &str) -> Result<()> {
        let fence = self.begin(key).await?;
        if self.random.percent(30) || kind == "saved" {
            self.save(key, fence).await?;
        }
        match kind {
            "open" | "saved" => return Ok(()),
            "released" => {
                return self.step(key, Action::Release(fence), Shape::Absent).await;
            }
            "waiting" | "failed" => {
                let is_final = kind == "failed";
                let failure = Failure {
                    outcome: outcome(key, fence.get()),
                    kind: if is_final { FailureKind::Permanent } else { FailureKind::Passing },
                    jitter: 0,
                };
                let shape =
                    if is_final { Shape::Failed(fence.get()) } else { Shape::Waiting(fence.get()) };
                return self.step(key, Action::Fail(fence, failure), shape).await;
            }
            _ => {}
        }
        let completed = Shape::Completed(fence.get());
        self.step(key, Action::Complete(fence, outcome(key, fence.get())), completed).await?;
        match kind {
            "erased" => self.step(key, Action::Erase(fence), Shape::Absent).await,
            "expired" => self.step(key, Action::Expire(fence), Shape::Absent).await,
            "buried" => self.step(key, Action::Expire(fence), Shape::Tombstone).await,
            "again" => {
                self.step(key, Action::Erase(fence), Shape::Absent).await?;
                let fence = self.begin(key).await?;
                let completed = Shape::Completed(fence.get());
                let action = Action::Complete(fence, outcome(key, fence.get()));
                self.step(key, action, completed).await
            }
            "completed" => {
                let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
                settled.push((key.to_owned(), fence.get()));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn begin(&mut self, key: &str) -> Result<Fence> {
        let operation = operation(key)?;
        let nothing = Shape::Claimed { fence: 0, checkpoint: None };
        self.say(Said::Trying, key, nothing, None);
        let token = Token(hash(key.as_bytes()).into());
        let answer =
            self.store.apply(&Step::begin(&operation, Owner::new("worker"), token)).await?;
        let Answer::Claimed(claimed) = answer else { bail!("{key} was not claimed: {answer:?}") };
        let is_durable = operation.policy().on_lapsed() != OnLapsed::Rerun;
        let said = if is_durable { Said::Durable } else { Said::Remembered };
        let shape = Shape::Claimed { fence: claimed.fence.get(), checkpoint: None };
        self.say(said, key, shape, None);
        Ok(claimed.fence)
    }

    async fn save(&mut self, key: &str, fence: Fence) -> Result<()> {
        let point = Checkpoint::new("half", fence.get().to_string())?;
        let checkpoint = Some(format!("half-{}", fence.get()));
        let shape = Shape::Claimed { fence: fence.get(), checkpoint };
        self.step(key, Action::Checkpoint(fence, point), shape).await
    }

    /// A step that must be applied, and is durable then.
    async fn step(&self, key: &str, action: Action, shape: Shape) -> Result<()> {
        self.say(Said::Trying, key, shape.clone(), None);
        let name = action.name();
        let answer = self.store.apply(&Step::new(operation(key)?.id(), action)).await?;
        if answer != Answer::Applied {
            bail!("{name} of {key} was not applied: {answer:?}");
        }
        self.say(Said::Durable, key, shape, None);
        Ok(())
    }

    /// Gives up an outcome that perhaps the storage engine has already.
    async fn give_up_older(&mut self) -> Result<()> {
        let chosen = {
            let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
            if settled.is_empty() {
                return Ok(());
            }
            let place = self.random.below(settled.len());
            settled.swap_remove(place)
        };
        let (key, fence) = chosen;
        self.step(&key, Action::Erase(Fence::new(fence)), Shape::Absent).await
    }

    /// An operation that writes its row with a checkpoint, and again with its outcome.
    async fn rows(&mut self, key: &str) -> Result<()> {
        let operation = operation(key)?;
        let is_durable = operation.policy().on_lapsed() != OnLapsed::Rerun;
        self.say(Said::Trying, key, Shape::Claimed { fence: 0, checkpoint: None }, None);
        let this = &*self;
        let ran = this.engine.run(&operation, async |context| {
            let fence = context.fence().get();
            let claimed = |checkpoint| Shape::Claimed { fence, checkpoint };
            let said = if is_durable { Said::Durable } else { Said::Remembered };
            this.say(said, key, claimed(None), None);
            let name = row_name(key).map_err(|_| HandlerError::Unknown)?;
            let saved = claimed(Some(format!("half-{fence}")));
            this.say(Said::Trying, key, saved.clone(), Some(1));
            let write = |rows: &mut RowWrites<'_>| {
                rows.put(name.clone(), row(key, 1));
                let point = context.point("half", fence.to_string());
                Ok(((), point.map_err(|_| HandlerError::Unknown)?))
            };
            this.store.checkpoint_with(&context, write).await?;
            this.say(Said::Durable, key, saved, Some(1));
            this.say(Said::Trying, key, Shape::Completed(fence), Some(2));
            let write = |rows: &mut RowWrites<'_>| {
                rows.put(name.clone(), row(key, 2));
                Ok(outcome(key, fence))
            };
            let outcome = this.store.outcome_with(&context, write).await?;
            this.say(Said::Durable, key, Shape::Completed(fence), Some(2));
            Ok(outcome)
        });
        ran.await.with_context(|| format!("{key} did not run"))?;
        Ok(())
    }
}
