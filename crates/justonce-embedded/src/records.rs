//! The protocol on an embedded store.

use std::sync::Arc;

use justonce_core::store::{Records, Stored};
use justonce_core::{Answer, ClaimEnd, Fence, RecordId, Step, StoreResult, is_running};

use crate::open::EmbeddedStore;
use crate::state::{ClaimWaiters, Found, closed};
use crate::step::{Attempt, StepResult, durable};
use crate::write::Write;

impl Records for EmbeddedStore {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        loop {
            let result = match self.0.stepper().attempt_fast(step.id, &step.action)? {
                Attempt::Made(result) => result,
                // Boxed: the common step, which needs no disk, is not larger for it.
                Attempt::NeedsDisk(left) => match Box::pin(self.with_disk(step, left)).await? {
                    Some(result) => result,
                    None => continue,
                },
            };
            match result {
                StepResult::Decided(answer, ticket) => {
                    if let Some(ticket) = ticket {
                        durable(&ticket).await?;
                    }
                    return Ok(answer);
                }
                StepResult::NoFences => {
                    let ticket = self.0.commits.enqueue(Write::empty()).map_err(|_| closed())?;
                    durable(&ticket).await?;
                }
            }
        }
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        let live = {
            let shard = self.0.state.table.of(id);
            shard.live.get(id).map(|live| (live.row.clone(), live.pending.clone()))
        };
        if let Some((row, pending)) = live {
            if let Some(ticket) = pending {
                durable(&ticket).await?;
            }
            return Ok(row.map(|row| row.stored.clone()));
        }
        let state = &self.0.state;
        let found = match state.cached(id) {
            None if !state.reads.are_fast() => Box::pin(self.read_apart(*id)).await?,
            None => state.read(id)?,
            found => found,
        };
        Ok(found.map(|found| found.row.stored.clone()))
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        let Some(waiters) = self.waiting_for(id, fence) else {
            return Ok(None);
        };
        let (ended, pending) = waiters.ended().await;
        let Some(ended) = ended else { return Ok(None) };
        if let Some(ticket) = pending {
            durable(ticket).await?;
        }
        Ok(Some(ended.clone()))
    }
}

impl EmbeddedStore {
    /// A settled record, from disk; no other task of the caller's thread waits for the disk.
    async fn read_apart(&self, id: RecordId) -> StoreResult<Option<Found>> {
        // The store stays open as long as it is read.
        let inner = Arc::clone(&self.0);
        self.0.state.reads.apart(move || inner.state.read(&id)).await
    }

    /// A step on a record that is not in memory; nothing if it has come there since.
    async fn with_disk(&self, step: &Step, left: u64) -> StoreResult<Option<StepResult>> {
        let found = self.read_apart(step.id).await?;
        self.0.stepper().with_found(step.id, &step.action, &[], found, left)
    }

    /// The waiters for the claim with this fence, if it is running.
    fn waiting_for(&self, id: &RecordId, fence: Fence) -> Option<Arc<ClaimWaiters>> {
        let mut shard = self.0.state.table.of(id);
        let now = self.0.state.now();
        let live = shard.live.get_mut(id)?;
        let running =
            live.row.as_ref().is_some_and(|row| is_running(&row.stored.entry, fence, now));
        running.then(|| Arc::clone(live.waiters.get_or_insert_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use justonce_core::engine::Begun;
    use justonce_core::{Engine, Existing, Key, Operation, Outcome, Owner, Ran, Scope, Token};
    use std::sync::Mutex;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    #[tokio::test]
    async fn more_fences_are_reserved_before_they_run_out() {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path()).unwrap();
        while store.0.state.fences.allocate().is_some() {}
        let operation = Operation::without_fingerprint(Scope::global(), Key::client("a").unwrap());
        let begin = Step::begin(&operation, Owner::new("a"), Token(1));
        let Answer::Claimed(claimed) = store.apply(&begin).await.unwrap() else {
            panic!("it was new");
        };
        drop(store);
        let store = EmbeddedStore::open(directory.path()).unwrap();
        let next = store.0.state.fences.allocate().unwrap();
        assert!(next > claimed.fence, "{next} after {}", claimed.fence);
    }

    /// The only thread of this runtime takes the steps, and ends what they wait for.
    #[tokio::test]
    async fn a_read_that_waits_for_the_disk_keeps_no_other_task_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let operation = Operation::without_fingerprint(Scope::global(), Key::client("a").unwrap());
        let done = Outcome::bytes("done");
        let engine = Engine::new(EmbeddedStore::open(directory.path()).unwrap());
        engine.run(&operation, async |_| Ok(Outcome::bytes("done"))).await.unwrap();
        drop(engine);

        let store = Arc::new(EmbeddedStore::open(directory.path()).unwrap());
        let engine = Engine::builder_shared(store.clone()).build();
        let (disk, stuck) = channel();
        let (begun, reading) = (Arc::new(tokio::sync::Semaphore::new(0)), Mutex::new(stuck));
        let reads = Arc::clone(&begun);
        let hook = move || {
            reads.add_permits(1);
            let answer = reading.lock().unwrap().recv_timeout(Duration::from_secs(20));
            assert_ne!(answer, Err(RecvTimeoutError::Timeout), "nobody else got the thread");
        };
        assert!(store.0.state.before_read.set(Box::new(hook)).is_ok());

        // A duplicate, a look and a first begin, each from disk.
        let (other, again) = (engine.clone(), operation.clone());
        let replay =
            tokio::spawn(async move { other.run(&again, async |_| panic!("it ran before")).await });
        begun.acquire().await.unwrap().forget();
        disk.send(()).unwrap();
        assert_eq!(replay.await.unwrap().unwrap(), Ran::Replayed(done.clone()));

        store.0.state.hot.clear();
        let (other, id) = (store.clone(), operation.id());
        let look = tokio::spawn(async move { other.get(&id).await });
        begun.acquire().await.unwrap().forget();
        disk.send(()).unwrap();
        assert!(look.await.unwrap().unwrap().is_some());

        let new = Operation::without_fingerprint(Scope::global(), Key::client("b").unwrap());
        let (other, first) = (engine.clone(), new.clone());
        let first = tokio::spawn(async move { other.begin(&first).await });
        begun.acquire().await.unwrap().forget();
        disk.send(()).unwrap();
        let Begun::Claimed(claim) = first.await.unwrap().unwrap() else { panic!("it was new") };
        // What is in memory needs no disk.
        let busy = engine.peek(&new).await.unwrap();
        assert!(matches!(busy, Some(Existing::Busy(_))), "{busy:?}");
        drop(disk);
        drop(claim);
    }

    /// All threads of a runtime that may block are taken, and steps of it wait for the disk.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "no signal comes from what is stuck")]
    fn a_runtime_that_is_stuck_keeps_no_other_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(EmbeddedStore::open(directory.path()).unwrap());
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(1).max_blocking_threads(1).enable_all().build().unwrap()
        };
        let begin = |key: String| {
            let key = Key::client(key).unwrap();
            let operation = Operation::without_fingerprint(Scope::global(), key);
            let (step, store) = (Step::begin(&operation, Owner::new("a"), Token(1)), store.clone());
            async move { store.apply(&step).await }
        };
        let (stuck, free) = (runtime(), runtime());
        let (end, ended) = channel::<()>();
        stuck.spawn_blocking(move || {
            let _ = ended.recv();
        });
        for number in 0..100 {
            stuck.spawn(begin(format!("stuck-{number}")));
        }
        std::thread::sleep(Duration::from_millis(300)); // tidy: allow-sleep: it is stuck
        let answer = free.block_on(async {
            tokio::time::timeout(Duration::from_secs(5), begin("free".to_owned())).await
        });
        drop(end);
        assert!(matches!(answer, Ok(Ok(Answer::Claimed(_)))), "{answer:?}");
    }
}
