//! Runtimes of callers that block or end, with real threads: the engine renews on one of its own.
//!
//! The store's clock stands still until a renewal has come, so that a slow machine is no failure:
//! only a renewal that does not come at all is one.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use justonce_core::engine::{Begun, Settlement};
use justonce_core::memory::MemoryStore;
use justonce_core::store::{ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport};
use justonce_core::{
    Action, Answer, ClaimEnd, Engine, Entropy, Fence, HeldClaim, Key, ManualClock, Operation,
    Outcome, Policy, RecordId, Scope, Step, StoreResult,
};
use tokio::runtime::{Builder, Runtime};

use crate::auditor::Violation;
use crate::draw::Draw;

/// Longer than any machine lets a thread wait that has something to do.
const RENEWED_WITHIN: Duration = Duration::from_secs(8);

/// What becomes of the first runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Blocks,
    Ends,
}

/// A memory store that tells when renewals come.
struct Told {
    store: MemoryStore,
    renewed: Arc<Renewed>,
}

/// The claims that were renewed since it was asked last.
#[derive(Default)]
struct Renewed {
    fences: Mutex<Vec<Fence>>,
    more: Condvar,
}

impl Renewed {
    fn add(&self, fence: Fence) {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner).push(fence);
        self.more.notify_all();
    }

    /// Waits until each of these claims was renewed. Not, if that takes too long.
    fn wait_for(&self, wanted: &[Fence]) -> bool {
        let mut fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        fences.clear();
        let missing = |fences: &mut Vec<Fence>| !wanted.iter().all(|fence| fences.contains(fence));
        let waited = self.more.wait_timeout_while(fences, RENEWED_WITHIN, missing);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// One run. What happened, in lines.
///
/// # Errors
///
/// The promise that was broken.
pub(crate) fn run(seed: u64) -> Result<String, (Violation, String)> {
    let draw = Draw::keyed(seed, &[6]);
    let fate = draw.one_of(Fate::Blocks, &[Fate::Ends]);
    let lease = draw.millis(150, 450);
    let healthy = draw.between(1, 3);
    let rounds = draw.between(2, 4);
    let mut lines = vec![format!(
        "a claim is begun on a runtime that {fate:?} then; {healthy} more on another, with leases \
         of {lease:?}"
    )];
    let result = Scene::set(seed, lease).and_then(|scene| scene.play(fate, healthy, rounds));
    let broken = match result {
        Ok(None) => return Ok(lines.join("\n")),
        Ok(Some(why)) => why,
        Err(error) => format!("the scene cannot be set: {error}"),
    };
    lines.push(broken.clone());
    let rule = "a healthy owner keeps its claim";
    Err((Violation { rule, operation: None, why: broken }, lines.join("\n")))
}

struct Scene {
    engine: Engine,
    clock: ManualClock,
    renewed: Arc<Renewed>,
    policy: Policy,
}

impl Scene {
    fn set(seed: u64, lease: Duration) -> io::Result<Self> {
        let clock = ManualClock::default();
        let renewed = Arc::<Renewed>::default();
        let store = Told { store: MemoryStore::new(clock.clone()), renewed: Arc::clone(&renewed) };
        let policy = Policy::builder().lease(lease).build().map_err(io::Error::other)?;
        let engine = Engine::builder(store).entropy(Entropy::seeded(seed)).build();
        Ok(Self { engine, clock, renewed, policy })
    }

    /// What was broken, if anything was.
    fn play(&self, fate: Fate, healthy: u64, rounds: u64) -> io::Result<Option<String>> {
        let (ready, is_ready) = channel();
        let (end, ended) = channel();
        let (engine, first) = (self.engine.clone(), self.operation(0)?);
        let unwell = thread::spawn(move || unwell(&engine, &first, fate, &ready, &ended));
        let begun = is_ready.recv().map_err(io::Error::other);
        let result = begun.and_then(|()| self.go_on(healthy, rounds));
        // It ends in any case.
        let _ = end.send(());
        let _ = unwell.join();
        result
    }

    fn go_on(&self, healthy: u64, rounds: u64) -> io::Result<Option<String>> {
        let runtime = runtime()?;
        let mut claims = Vec::new();
        for number in 1..=healthy {
            claims.push(begin(&runtime, &self.engine, &self.operation(number)?)?);
        }
        let fences: Vec<_> = claims.iter().map(HeldClaim::fence).collect();
        for round in 0..rounds {
            if !self.renewed.wait_for(&fences) {
                return Ok(Some(format!(
                    "round {round}: not all of the healthy claims were renewed within \
                     {RENEWED_WITHIN:?}"
                )));
            }
            self.clock.advance(self.policy.lease() / 2);
        }
        for mut claim in claims {
            let stored = runtime.block_on(claim.complete(Outcome::bytes("done")));
            if !matches!(stored, Ok(Settlement::Stored)) {
                return Ok(Some(format!("a healthy claim was not completed: {stored:?}")));
            }
        }
        Ok(None)
    }

    fn operation(&self, number: u64) -> io::Result<Operation> {
        let key = Key::client(format!("operation-{number}")).map_err(io::Error::other)?;
        Ok(Operation::without_fingerprint(Scope::global(), key).with_policy(self.policy))
    }
}

/// The runtime that begins first, and then does nothing any more.
fn unwell(
    engine: &Engine,
    operation: &Operation,
    fate: Fate,
    ready: &Sender<()>,
    ended: &Receiver<()>,
) -> io::Result<()> {
    let runtime = runtime()?;
    let claim = begin(&runtime, engine, operation)?;
    let wait = || {
        let _ = ready.send(());
        let _ = ended.recv();
    };
    match fate {
        // It stands still in the middle of a task.
        Fate::Blocks => runtime.block_on(async { wait() }),
        Fate::Ends => {
            drop(runtime);
            wait();
        }
    }
    drop(claim);
    Ok(())
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_time().build()
}

fn begin(runtime: &Runtime, engine: &Engine, operation: &Operation) -> io::Result<HeldClaim> {
    match runtime.block_on(engine.begin(operation)) {
        Ok(Begun::Claimed(claim)) => Ok(claim),
        other => Err(io::Error::other(format!("a new operation was not claimed: {other:?}"))),
    }
}

impl Records for Told {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        let answer = Records::apply(&self.store, step).await?;
        if let (Action::Renew(fence), Answer::Renewed(_)) = (&step.action, &answer) {
            self.renewed.add(*fence);
        }
        Ok(answer)
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        Records::get(&self.store, id).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        Records::settled(&self.store, id, fence).await
    }
}

impl Maintenance for Told {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        Maintenance::list(&self.store, query).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        Maintenance::stats(&self.store).await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        Maintenance::sweep(&self.store, limit).await
    }

    async fn ready(&self) -> StoreResult<()> {
        Maintenance::ready(&self.store).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claims_of_a_runtime_that_is_well_are_renewed() {
        for seed in 0..6 {
            assert_eq!(run(seed).map_err(|(violation, _)| violation.why).map(|_| ()), Ok(()));
        }
    }
}
