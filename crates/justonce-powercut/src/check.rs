//! Opens what a cut has left, and compares it with what had been acknowledged.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use justonce_core::store::{Records as _, Stored};
use justonce_core::{
    Answer, Checkpoint, Entry, Existing, Failed, Key, OnLapsed, Operation, Outcome, Owner, Scope,
    State, Step, Token,
};
use justonce_embedded::{EmbeddedStore, OpenError};

use crate::history::{History, Known, Seen, Shape};
use crate::record::STORE;
use crate::workload::{clock_of, is_perishable, operation, outcome, row, row_name};

const CACHE_BYTES: u64 = 4 * 1024 * 1024;
/// Until then the worker's processes are over.
const LATER_PROCESS: u64 = 10;

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// What had been said until the cut.
    pub history: &'a History,
    /// How often the store is opened, one time after the other.
    pub openings: usize,
}

impl Check<'_> {
    /// Opens the store below a directory, and compares.
    ///
    /// # Errors
    ///
    /// What was lost, or why it cannot be opened.
    pub fn run(self, root: &Path) -> Result<()> {
        for opening in 1..=self.openings {
            let checked = catch_unwind(AssertUnwindSafe(|| self.once(root, opening)));
            let checked = checked.unwrap_or_else(|_| bail!("it panicked"));
            checked.with_context(|| format!("opening {opening}"))?;
        }
        Ok(())
    }

    fn once(self, root: &Path, opening: usize) -> Result<()> {
        let opened = EmbeddedStore::builder(root.join(STORE))
            .cache_bytes(CACHE_BYTES)
            .clock(clock_of(LATER_PROCESS))
            .open();
        if self.history.keys.is_empty() && is_cut_short(&opened) {
            return Ok(());
        }
        let store = opened.context("the store cannot be opened")?;
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        runtime.block_on(async {
            for (key, known) in &self.history.keys {
                let found = self.found(&store, key).await;
                let found = found.with_context(|| format!("{key}, of which {known:?} is known"))?;
                compare(key, known, &found)?;
                self.begin(&store, key, &found).await?;
            }
            self.fence(&store, opening).await
        })
    }

    async fn found(self, store: &EmbeddedStore, key: &str) -> Result<Seen> {
        let stored = store.get(&operation(key)?.id()).await?;
        let value = store.row(&row_name(key)?).await?;
        let number = value.as_deref().and_then(|value| value.first_chunk::<8>());
        let number = number.map(|bytes| u64::from_le_bytes(*bytes));
        if let Some(number) = number
            && value.is_some_and(|value| value != row(key, number))
        {
            bail!("the row is not what was written");
        }
        Ok(Seen { shape: shape(key, stored.as_ref())?, row: number })
    }

    /// What a caller who comes now gets.
    async fn begin(self, store: &EmbeddedStore, key: &str, found: &Seen) -> Result<()> {
        let operation = operation(key)?;
        let begin = Step::begin(&operation, Owner::new("late"), Token(1));
        match (&found.shape, operation.policy().on_lapsed()) {
            (Shape::Completed(fence), _) if !is_perishable(key) => {
                let answer = store.apply(&begin).await?;
                if answer.completed() != Some(&outcome(key, *fence)) {
                    bail!("{key} is not replayed");
                }
            }
            (Shape::Claimed { .. }, OnLapsed::Hold) => {
                let answer = store.apply(&begin).await?;
                let is_held = matches!(answer, Answer::Held(_))
                    || matches!(answer, Answer::Existing(Existing::Unknown(_)));
                if !is_held {
                    bail!("{key}, claimed under hold, is not held: {answer:?}");
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The next fence lies above all that were given.
    async fn fence(self, store: &EmbeddedStore, opening: usize) -> Result<()> {
        let key = Key::client(format!("the-next-fence-{opening}"))?;
        let operation = Operation::without_fingerprint(Scope::global(), key);
        let begin = Step::begin(&operation, Owner::new("next"), Token(1));
        let answer = store.apply(&begin).await?;
        let Answer::Claimed(claimed) = answer else { bail!("nothing was claimed: {answer:?}") };
        let highest = self.history.highest_fence;
        if claimed.fence.get() <= highest {
            bail!("the fence {} was given after {highest}", claimed.fence.get());
        }
        Ok(())
    }
}

/// A restore that was never said to be done has left no store.
fn is_cut_short(opened: &Result<EmbeddedStore, OpenError>) -> bool {
    opened.as_ref().is_err_and(|error| error.to_string().contains("was cut short"))
}

fn compare(key: &str, known: &Known, found: &Seen) -> Result<()> {
    if known.allows(found) {
        return Ok(());
    }
    let may_be_over = is_perishable(key) && matches!(found.shape, Shape::Absent | Shape::Tombstone);
    let was_completed = |seen: &Seen| matches!(seen.shape, Shape::Completed(_));
    if may_be_over && (was_completed(&known.sure) || known.maybe.iter().any(was_completed)) {
        return Ok(());
    }
    bail!("{key}: `{found}` was found, and `{}` acknowledged; {:?} tried", known.sure, known.maybe)
}

fn shape(key: &str, stored: Option<&Stored>) -> Result<Shape> {
    let record = match stored.map(|stored| &stored.entry) {
        None => return Ok(Shape::Absent),
        Some(Entry::Tombstone(_)) => return Ok(Shape::Tombstone),
        Some(Entry::Record(record)) => record,
    };
    let fence = record.fence.get();
    let is_ours = |found: &Outcome| {
        if *found == outcome(key, fence) { Ok(()) } else { bail!("another outcome was found") }
    };
    let claimed = |checkpoint: Option<&Checkpoint>| Shape::Claimed {
        fence,
        checkpoint: checkpoint
            .map(|point| format!("{}-{}", point.name(), String::from_utf8_lossy(point.data()))),
    };
    Ok(match &record.state {
        State::InProgress(claim) => claimed(claim.checkpoint.as_ref()),
        State::Unknown(unknown) => claimed(unknown.checkpoint.as_ref()),
        State::Completed(settled) => {
            is_ours(&settled.outcome)?;
            Shape::Completed(fence)
        }
        State::Failed(Failed::Final(settled)) => {
            is_ours(&settled.outcome)?;
            Shape::Failed(fence)
        }
        State::Failed(Failed::AwaitingRetry(waiting)) => {
            is_ours(&waiting.failure)?;
            Shape::Waiting(fence)
        }
    })
}
