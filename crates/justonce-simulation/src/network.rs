//! What lies between a process and its store: calls that are slow, hang, lose the request or the
//! reply, are carried out late or twice.
//!
//! What happens to a call depends on the seed, the process, the record, the step and how often that
//! was tried, and on nothing else: leaving out a part of the plan changes no other part.
//!
//! Trouble is bounded as the promises need it. Of one begin, or one write of one claim, at most two
//! tries fail. Of the renewals of a claim, at most every third: a lease is lost by what happens to
//! its owner, not by the network. What is carried out late comes within a third of the lease.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use justonce_core::store::{
    Health, ListQuery, Maintenance, Page, Records, SharedStore, Stats, Stored, SweepReport,
};
use justonce_core::{
    Action, Answer, ClaimEnd, Fence, RecordId, Step, StoreError, StoreErrorKind, StoreResult,
};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::base::Base;
use crate::draw::Draw;
use crate::history::{Log, What};

/// The fewest renewals that go well after one that did not.
const RENEWALS_BETWEEN: u32 = 2;
/// So often may tries of one step fail.
const MOST_FAILURES: u32 = 2;

/// The connection of one life of a process to the store.
#[derive(Debug)]
pub(crate) struct Network {
    shared: Arc<Shared>,
}

/// What is the same for all networks of a run.
#[derive(Debug)]
pub(crate) struct Weather {
    pub(crate) seed: u64,
    /// In how many of a hundred calls something goes wrong.
    pub(crate) trouble: u64,
    /// Whether calls that hang are given up by a layer above.
    pub(crate) hangs: bool,
    pub(crate) calm: AtomicBool,
    /// The operations by the names of their records, with their leases.
    pub(crate) operations: BTreeMap<RecordId, (usize, Duration)>,
    pub(crate) log: Log,
}

/// What the process and its network share.
#[derive(Debug)]
pub(crate) struct Shared {
    weather: Arc<Weather>,
    base: Arc<dyn Base>,
    process: usize,
    life: u32,
    /// The process has died: nothing it does reaches the store.
    dead: AtomicBool,
    partitioned: AtomicBool,
    tries: Mutex<BTreeMap<Identity, Tried>>,
}

/// What is tried again when it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    id: RecordId,
    action: &'static str,
    claim: u128,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    calls: u64,
    failures: u32,
    /// How many went well since the last failure.
    well: u32,
}

/// What becomes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fine,
    /// It takes longer, and ends well.
    Slow,
    NotApplied,
    LostRequest,
    LostReply,
    /// No reply, and it is carried out when nobody expects it any more.
    Late,
    /// It hangs, and is not carried out.
    Hangs,
    /// It hangs, and is carried out late.
    HangsAndLate,
    /// It hangs after it was carried out.
    HangsAfter,
    Twice,
}

impl Network {
    pub(crate) fn new(
        weather: &Arc<Weather>,
        base: &Arc<dyn Base>,
        process: usize,
        life: u32,
    ) -> (Self, Arc<Shared>) {
        let shared = Arc::new(Shared {
            weather: Arc::clone(weather),
            base: Arc::clone(base),
            process,
            life,
            dead: AtomicBool::new(false),
            partitioned: AtomicBool::new(false),
            tries: Mutex::default(),
        });
        (Self { shared: Arc::clone(&shared) }, shared)
    }
}

impl Shared {
    /// The process has died.
    pub(crate) fn cut(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(crate) fn partition(&self, cut: bool) {
        self.partitioned.store(cut, Ordering::Relaxed);
    }

    fn tries(&self) -> MutexGuard<'_, BTreeMap<Identity, Tried>> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_calm(&self) -> bool {
        self.weather.calm.load(Ordering::Relaxed)
    }

    /// The draws of one call, and whether trouble is allowed.
    fn next(&self, step: &Step) -> (Draw, bool) {
        let identity =
            Identity { id: step.id, action: step.action.name(), claim: claim_of(&step.action) };
        let mut tries = self.tries();
        let tried = tries.entry(identity).or_default();
        tried.calls += 1;
        let renews = matches!(step.action, Action::Renew(_));
        let allowed = if renews {
            tried.failures == 0 || tried.well >= RENEWALS_BETWEEN
        } else {
            tried.failures < MOST_FAILURES
        };
        let name = [
            2,
            self.process as u64,
            u64::from(self.life),
            first_word(&step.id),
            action_number(&step.action),
            u64::try_from(identity.claim >> 64).unwrap_or_default(),
            u64::try_from(identity.claim & u128::from(u64::MAX)).unwrap_or_default(),
            tried.calls,
        ];
        (Draw::keyed(self.weather.seed, &name), allowed)
    }

    fn note(&self, step: &Step, went_well: bool) {
        let identity =
            Identity { id: step.id, action: step.action.name(), claim: claim_of(&step.action) };
        let mut tries = self.tries();
        let tried = tries.entry(identity).or_default();
        if went_well {
            tried.well += 1;
        } else {
            tried.failures += 1;
            tried.well = 0;
        }
    }

    fn fate(&self, step: &Step, draw: &Draw, allowed: bool) -> Fate {
        let bad = allowed && !self.is_calm() && draw.percent(self.weather.trouble);
        if !bad {
            return Fate::Fine;
        }
        let renews = matches!(step.action, Action::Renew(_));
        let fate = match draw.below(12) {
            0..=1 => Fate::Slow,
            2 => Fate::NotApplied,
            3 => Fate::LostRequest,
            4..=5 => Fate::LostReply,
            6 => Fate::Late,
            7 => Fate::Hangs,
            8..=9 => Fate::HangsAndLate,
            10 => Fate::HangsAfter,
            _ => Fate::Twice,
        };
        let hangs = matches!(fate, Fate::Hangs | Fate::HangsAndLate | Fate::HangsAfter);
        // What may hang for ever needs a limit; the engine has its own for renewals.
        if hangs && !self.weather.hangs && !renews { Fate::LostReply } else { fate }
    }

    fn say(&self, step: &Step, what: &str) {
        let operation = self.weather.operations.get(&step.id).map(|(number, _)| *number);
        let what = format!("{} {what}", named(&step.action));
        self.weather.log.add(What::Network { process: self.process, operation, what });
    }

    fn lease(&self, id: &RecordId) -> Duration {
        self.weather.operations.get(id).map_or(Duration::from_secs(10), |(_, lease)| *lease)
    }

    fn store(&self) -> StoreResult<SharedStore> {
        self.base.store().ok_or_else(|| refused("the store is down"))
    }

    /// Carries a step out later, whatever becomes of its caller.
    fn send(self: &Arc<Self>, step: &Step, delay: Duration) -> JoinHandle<StoreResult<Answer>> {
        let (shared, step) = (Arc::clone(self), step.clone());
        tokio::spawn(async move {
            sleep(delay).await;
            let answer = shared.store()?.apply(&step).await;
            let said = answer.as_ref().map_or("fails", Answer::name);
            shared.say(&step, &format!("is carried out late: {said}"));
            answer
        })
    }

    /// Waits for as long as nothing gets through.
    async fn reach(&self) -> StoreResult<()> {
        if self.is_cut() {
            return pending().await;
        }
        if self.partitioned.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(50)).await;
            return Err(refused("no route to the store"));
        }
        Ok(())
    }
}

/// Waits for nothing but time.
async fn pause(delay: Duration) {
    if !delay.is_zero() {
        sleep(delay).await;
    }
}

fn refused(why: &str) -> StoreError {
    StoreError::not_applied(StoreErrorKind::Unavailable, why)
}

fn lost() -> StoreError {
    StoreError::maybe_applied(StoreErrorKind::Unavailable, "no reply came")
}

/// What names a claim: the token of a begin, the fence of a write.
fn claim_of(action: &Action) -> u128 {
    match action {
        Action::Begin(begin) => begin.token.0,
        other => other.fence().map_or(0, |fence| u128::from(fence.get())),
    }
}

fn named(action: &Action) -> String {
    let name = action.name();
    action.fence().map_or_else(|| name.to_owned(), |fence| format!("{name} of fence {fence}"))
}

fn first_word(id: &RecordId) -> u64 {
    id.as_bytes().first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

const fn action_number(action: &Action) -> u64 {
    match action {
        Action::Begin(_) => 1,
        Action::Peek(_) => 2,
        Action::Complete(..) => 3,
        Action::Fail(..) => 4,
        Action::Release(_) => 5,
        Action::Renew(_) => 6,
        Action::Checkpoint(..) => 7,
        Action::Abandon(..) => 8,
        Action::Resolve(..) => 9,
        Action::Expire(_) => 10,
        Action::Erase(_) => 11,
        Action::Sweep => 12,
    }
}

impl Records for Network {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        let shared = &self.shared;
        shared.reach().await?;
        let (draw, allowed) = shared.next(step);
        let fate = shared.fate(step, &draw, allowed);
        shared.note(step, fate == Fate::Fine);
        let calm = shared.is_calm();
        // The way there and back.
        let (there, back) = (draw.millis(0, 4), draw.millis(0, 4));
        pause(if calm { Duration::ZERO } else { there }).await;
        if fate != Fate::Fine {
            shared.say(step, &format!("{fate:?}"));
        }
        let lease = shared.lease(&step.id);
        let late = draw.millis(1, u64::try_from(lease.as_millis() / 3).unwrap_or(1));
        match fate {
            Fate::NotApplied => return Err(refused("the connection was refused")),
            Fate::LostRequest => return Err(lost()),
            Fate::Late => {
                drop(shared.send(step, late));
                return Err(lost());
            }
            Fate::Hangs => return pending().await,
            Fate::HangsAndLate => {
                drop(shared.send(step, late));
                return pending().await;
            }
            Fate::HangsAfter | Fate::LostReply => {
                shared.store()?.apply(step).await?;
                pause(back).await;
                return if fate == Fate::LostReply { Err(lost()) } else { pending().await };
            }
            Fate::Twice => {
                shared.store()?.apply(step).await?;
                pause(back).await;
            }
            // It is on its way, and does not come back when its caller leaves.
            Fate::Slow => {
                let slow = draw.millis(1, u64::try_from(lease.as_millis() / 12).unwrap_or(1));
                let sent = shared.send(step, slow);
                return sent.await.unwrap_or_else(|_| Err(lost()));
            }
            Fate::Fine => {}
        }
        if shared.is_cut() {
            return pending().await;
        }
        let answer = shared.store()?.apply(step).await;
        pause(if calm { Duration::ZERO } else { back }).await;
        if shared.is_cut() { pending().await } else { answer }
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        self.shared.reach().await?;
        self.shared.store()?.get(id).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.shared.reach().await?;
        let store = self.shared.store()?;
        let ended = store.settled(id, fence).await?;
        self.shared.reach().await?;
        Ok(ended)
    }
}

impl Maintenance for Network {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.shared.reach().await?;
        self.shared.store()?.list(query).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.shared.reach().await?;
        self.shared.store()?.stats().await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.shared.reach().await?;
        self.shared.store()?.sweep(limit).await
    }

    async fn ready(&self) -> StoreResult<()> {
        Ok(())
    }

    async fn health(&self) -> StoreResult<Health> {
        Ok(Health::default())
    }
}
