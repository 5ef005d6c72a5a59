//! Backups of an open store.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use justonce_core::Timestamp;

use super::archive;
use super::error::BackupError;
use super::frozen::Frozen;
use super::list::List;
use super::progress::Progress;
use super::unpack::Unpacker;
use crate::open::{EmbeddedStore, Inner};
use crate::write::Write as WalWrite;

/// What a backup is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// When it was begun, by the machine's clock: what was acknowledged before is in it.
    pub taken_at: Timestamp,
    /// How many files it has.
    pub files: usize,
    /// How large they are together.
    pub bytes: u64,
    /// Files that were damaged in the store already. The backup has them as they are.
    pub damaged: Vec<String>,
}

impl BackupReport {
    pub(super) fn of(list: &List) -> Self {
        Self {
            taken_at: list.taken_at,
            files: list.files.len(),
            bytes: list.bytes(),
            damaged: list.damaged.clone(),
        }
    }
}

impl EmbeddedStore {
    /// Makes a backup in a directory that is empty or does not exist, while the store is used.
    ///
    /// All that was acknowledged before is in it. Callers go on meanwhile. One that is cut short,
    /// also by a full disk or the end of the process, is no backup and harms no store.
    ///
    /// [`restore`](super::restore) makes a store of it.
    ///
    /// ```
    /// use justonce_embedded::EmbeddedStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let place = tempfile::tempdir()?;
    /// # let (data, backup) = (place.path().join("data"), place.path().join("backup"));
    /// let store = EmbeddedStore::open(&data)?;
    /// let report = store.backup(&backup).await?;
    /// assert!(report.damaged.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the directory is not empty, something cannot be read or written, or another backup is
    /// being made.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<BackupReport, BackupError> {
        let to = to.as_ref().to_owned();
        let backup = self.backups().begin().await?;
        blocking(move || {
            let mut unpacker = Unpacker::new(&to)?;
            backup.write_to(&mut unpacker, &mut |_| {})?;
            unpacker.finish()
        })
        .await
    }

    /// A handle by which backups are made. It does not keep the store open.
    #[must_use]
    pub fn backups(&self) -> Backups {
        Backups(Arc::downgrade(&self.0))
    }
}

/// Makes backups of a store that somebody else has.
#[derive(Clone)]
pub struct Backups(Weak<Inner>);

impl Backups {
    /// Whether a backup is being begun or sent.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.0.upgrade().is_some_and(|inner| inner.backing_up.load(Ordering::Acquire))
    }

    /// Begins a backup: what is acknowledged now will be in it.
    ///
    /// # Errors
    ///
    /// If the store was closed or has stopped, its files cannot be linked, or another backup is
    /// being made.
    pub async fn begin(&self) -> Result<Backup, BackupError> {
        let gone = || BackupError::Stopped("it is closed".to_owned());
        let inner = self.0.upgrade().ok_or_else(gone)?;
        let alone = Alone::take(&inner.backing_up).ok_or(BackupError::Busy)?;
        let taken_at = inner.state.clock_now();
        // What was acknowledged has been passed to the applier once a later batch is durable.
        let ticket = inner.commits.enqueue(WalWrite::empty()).map_err(|_| {
            let why = inner.state.stopped.get();
            why.map_or_else(gone, |why| BackupError::Stopped(why.to_string()))
        })?;
        ticket.durable().await.map_err(|why| BackupError::Stopped(why.to_string()))?;
        blocking(move || freeze(&inner, taken_at, alone)).await
    }
}

fn freeze(inner: &Inner, taken_at: Timestamp, alone: Alone) -> Result<Backup, BackupError> {
    let queue = &inner.apply_queue;
    queue.flush().map_err(|why| BackupError::Stopped(why.to_string()))?;
    let gate = queue.pause();
    let frozen = Frozen::of(&inner.engine());
    let batch = queue.durable();
    drop(gate);
    let io = |error| BackupError::io("cannot freeze the files of", &inner.engine(), error);
    Ok(Backup { frozen: frozen.map_err(io)?, taken_at, batch, _alone: alone })
}

/// A backup that was begun, and is to be sent.
pub struct Backup {
    frozen: Frozen,
    taken_at: Timestamp,
    batch: u64,
    _alone: Alone,
}

impl Backup {
    /// Sends it, and blocks meanwhile. An [`Unpacker`] makes a directory of the stream.
    ///
    /// # Errors
    ///
    /// If something cannot be read or sent.
    pub fn write_to(
        self,
        out: &mut dyn Write,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<BackupReport, BackupError> {
        let list = List { taken_at: self.taken_at, batch: self.batch, ..List::default() };
        let send = || -> io::Result<List> {
            let sources = self.frozen.sources()?;
            archive::write(&sources, list, out, tell)
        };
        let list = send().map_err(|source| BackupError::Io {
            message: "the backup could not be finished".to_owned(),
            source,
        })?;
        Ok(BackupReport::of(&list))
    }
}

/// There is one backup at a time.
struct Alone(Arc<AtomicBool>);

impl Alone {
    fn take(of: &Arc<AtomicBool>) -> Option<Self> {
        (!of.swap(true, Ordering::AcqRel)).then(|| Self(Arc::clone(of)))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BackupError> + Send + 'static,
) -> Result<T, BackupError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(BackupError::Stopped(format!("it was not finished: {error}"))))
}

impl fmt::Debug for Backups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backups").finish_non_exhaustive()
    }
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backup").field("taken_at", &self.taken_at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use justonce_core::{Engine, Key, OnLapsed, Operation, Outcome, Policy, Ran, Scope};

    use super::*;

    #[tokio::test]
    async fn callers_do_not_wait_while_files_are_frozen() {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path()).unwrap();
        let queue = Arc::clone(&store.0.apply_queue);
        let (frozen, is_frozen) = channel();
        let (done, is_done) = channel::<()>();
        let freezing = std::thread::spawn(move || {
            let gate = queue.pause();
            frozen.send(()).unwrap();
            // Until the callers are done.
            let _ = is_done.recv();
            drop(gate);
        });
        is_frozen.recv().unwrap();
        let engine = Engine::new(store);
        let policy = Policy::builder().on_lapsed(OnLapsed::Hold).build().unwrap();
        for number in 0..20 {
            let key = Key::client(format!("order-{number}")).unwrap();
            let operation =
                Operation::without_fingerprint(Scope::global(), key).with_policy(policy);
            let ran = engine.run(&operation, async |_| Ok(Outcome::empty())).await.unwrap();
            assert!(matches!(ran, Ran::Executed(_)), "{ran:?}");
        }
        drop(done);
        freezing.join().unwrap();
    }
}
