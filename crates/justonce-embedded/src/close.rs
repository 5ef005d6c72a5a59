//! Closing an embedded store.

use std::sync::{Arc, PoisonError};

use justonce_core::codec;

use crate::commit::Ticket;
use crate::error::CloseError;
use crate::open::{EmbeddedStore, Inner};
use crate::write::{DiskOp, DiskState, Write};

/// What became of claims that were only in memory.
#[derive(Default)]
struct Persisted {
    /// The last write, with how many were queued.
    queued: Option<(Ticket, usize)>,
    /// Those that the queue did not take.
    refused: usize,
}

impl EmbeddedStore {
    /// Closes the store: what is queued is written, claims that were only in memory too, and the
    /// threads end. It blocks until then. Steps that would write are refused from here on, replays
    /// go on; the directory is free for another process once the store is dropped. Closing it again
    /// does nothing, and returns the same.
    ///
    /// ```
    /// use justonce_embedded::EmbeddedStore;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a");
    /// let store = EmbeddedStore::open(&path)?;
    /// store.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If not everything could be written; the error says what. What was acknowledged as durable is
    /// on disk either way.
    pub fn close(&self) -> Result<(), CloseError> {
        self.0.close()
    }
}

impl Inner {
    fn close(&self) -> Result<(), CloseError> {
        self.closed.get_or_init(|| self.close_once()).clone()
    }

    fn close_once(&self) -> Result<(), CloseError> {
        self.state.refuse_writes();
        let Persisted { queued, refused } = self.persist_memory();
        // The writer goes with its thread, and the applier's work ends with the writer.
        self.commits.close();
        let lost = match &queued {
            Some((ticket, count)) if !ticket.is_durable() => *count,
            _ => 0,
        };
        let applier = self.applier.lock().unwrap_or_else(PoisonError::into_inner).take();
        let applied = applier.map(std::thread::JoinHandle::join);
        let why: Option<Arc<str>> = match (self.state.stopped.get(), &applied) {
            (Some(why), _) => Some(Arc::clone(why)),
            (None, Some(Err(_))) => Some("the thread that applies has panicked".into()),
            (None, _) if lost + refused > 0 => Some("the writer thread had ended before".into()),
            (None, _) => None,
        };
        // An applier that panicked leaves its work to the log.
        self.refresh.set(applied.and_then(Result::ok).flatten());
        let Some(why) = why else { return Ok(()) };
        let error = CloseError { why, not_written: lost + refused };
        tracing::error!(target: "justonce::store", %error, "closing the store");
        Err(error)
    }

    /// Queues what is only in memory, so that a clean restart finds everything.
    fn persist_memory(&self) -> Persisted {
        let mut persisted = Persisted::default();
        for mut shard in self.state.table.each() {
            for (id, live) in &mut shard.live {
                let Some(row) = live.row.as_ref().filter(|_| live.dirty) else {
                    continue;
                };
                let op = Some(DiskOp::Put(codec::encode(id, &row.stored)));
                let (replaces, adds) = (live.on_disk, DiskState::Live);
                let write = Write { id: *id, op, replaces, adds, ..Write::empty() };
                match self.commits.enqueue(write) {
                    Ok(ticket) => {
                        live.dirty = false;
                        let before = persisted.queued.map_or(0, |(_, count)| count);
                        persisted.queued = Some((ticket, before + 1));
                    }
                    Err(_) => persisted.refused += 1,
                }
            }
        }
        persisted
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What could not be written is in the log of the process.
        let _ = self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use justonce_core::store::Records;
    use justonce_core::{
        Answer, Engine, Key, OnLapsed, Operation, Outcome, Owner, Policy, Ran, Scope, Step, Token,
    };

    fn operation(key: &str) -> Operation {
        let policy = Policy::builder().on_lapsed(OnLapsed::Rerun).build().unwrap();
        let key = Key::client(key).unwrap();
        Operation::without_fingerprint(Scope::global(), key).with_policy(policy)
    }

    #[tokio::test]
    async fn a_closed_store_replays_and_refuses_to_write() {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(EmbeddedStore::open(directory.path()).unwrap());
        let engine = Engine::builder_shared(store.clone()).build();
        let done = operation("done");
        engine.run(&done, async |_| Ok(Outcome::bytes("done"))).await.unwrap();
        let begin = Step::begin(&operation("running"), Owner::new("a"), Token(1));
        assert!(matches!(store.apply(&begin).await.unwrap(), Answer::Claimed(_)));
        for _ in 0..2 {
            store.close().unwrap();
        }
        let replayed = engine.run(&done, async |_| panic!("it ran before")).await.unwrap();
        assert_eq!(replayed, Ran::Replayed(Outcome::bytes("done")));
        let refused = engine.begin(&operation("new")).await.unwrap_err().to_string();
        assert!(refused.contains("closed"), "{refused}");
        drop((engine, store));

        // The claim was only in memory.
        let store = EmbeddedStore::open(directory.path()).unwrap();
        assert!(store.get(&operation("running").id()).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn closing_says_what_could_not_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path()).unwrap();
        for key in ["a", "b", "c"] {
            let begin = Step::begin(&operation(key), Owner::new("a"), Token(1));
            assert!(matches!(store.apply(&begin).await.unwrap(), Answer::Claimed(_)));
        }
        store.0.state.stop("the disk is full");
        let error = store.close().unwrap_err();
        assert_eq!(error.not_written(), 3);
        let said = error.to_string();
        assert!(said.contains("the disk is full") && said.contains("3 claims"), "{said}");
        assert_eq!(store.close().unwrap_err(), error, "closing again says the same");
    }
}
