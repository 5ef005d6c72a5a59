//! An embedded store on a disk that is copied where the process crashes.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use justonce_core::store::{
    Health, ListQuery, Maintenance, Page, Records, SharedStore, Stats, Stored, SweepReport,
};
use justonce_core::{Answer, ClaimEnd, Fence, RecordId, Step, StoreResult};
use justonce_embedded::{Driver, EmbeddedStore};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::base::Base;
use crate::clock::JumpingClock;
use crate::draw::Draw;
use crate::history::{Log, What};

/// Memory is faster than a disk, and a crash of the simulation does not end the machine.
const FAST_DISK: &str = "/dev/shm";
/// The storage engine's cache.
const CACHE_BYTES: u64 = 1 << 20;
/// Every how many batches a row names all: often, since a run has few batches.
const NAME_ALL_EVERY: u64 = 3;
/// The folder of the log inside the directory.
const LOG: &str = "wal";
/// The file with the number of the last batch.
const WATERMARK: &str = "watermark";

/// The store, its disk, and those who drive it.
pub(crate) struct Embedded {
    disk: TempDir,
    clock: JumpingClock,
    log: Log,
    draw: Draw,
    /// After how many of a hundred commits everything is brought over to the engine.
    applies: u64,
    /// Something may be queued.
    queued: Arc<Notify>,
    open: Mutex<Disk>,
}

/// What is on disk, and the store while it is open.
struct Disk {
    directory: PathBuf,
    crashes: u32,
    store: Option<(Arc<EmbeddedStore>, Driver)>,
}

impl Embedded {
    /// A new store.
    pub(crate) fn create(seed: u64, clock: JumpingClock, log: Log) -> Result<Arc<Self>, String> {
        let fast = Path::new(FAST_DISK);
        let disk = tempfile::Builder::new()
            .prefix("justonce-simulation-")
            .tempdir_in(fast)
            .or_else(|_| tempfile::tempdir())
            .map_err(|error| error.to_string())?;
        let draw = Draw::keyed(seed, &[5]);
        let directory = disk.path().join("0");
        let embedded = Arc::new(Self {
            disk,
            clock,
            log,
            applies: draw.one_of(0, &[10, 60]),
            draw,
            queued: Arc::default(),
            open: Mutex::new(Disk { directory, crashes: 0, store: None }),
        });
        embedded.restart()?;
        tokio::spawn(Arc::clone(&embedded).drive());
        Ok(embedded)
    }

    /// Writes what is queued, a moment after it came.
    async fn drive(self: Arc<Self>) {
        loop {
            self.queued.notified().await;
            sleep(self.draw.millis(0, 6)).await;
            if let Some((_, driver)) = &mut self.open().store {
                driver.commit();
            }
            if self.draw.percent(self.applies) {
                self.apply();
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, Disk> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, what: String) {
        self.log.add(What::Disk { what });
    }

    /// Copies what a crash leaves: without what is queued, with all of it though nobody was told,
    /// or with a part of its last batch.
    fn crash_into(&self, open: &mut Disk, copy: &Path) -> io::Result<()> {
        let Some((_, driver)) = &mut open.store else { return Ok(()) };
        let before = log_of(&open.directory)?;
        let written = match self.draw.below(3) {
            0 => "and nothing that was queued",
            1 => {
                driver.commit();
                "and all that was queued, unanswered"
            }
            _ => {
                driver.commit();
                "and a part of the batch that was being written"
            }
        };
        copy_folder(&open.directory, copy)?;
        if written.contains("part") {
            tear(&before, copy, &self.draw)?;
        }
        self.say(format!("it holds what was acknowledged, {written}"));
        Ok(())
    }
}

impl Base for Embedded {
    fn store(&self) -> Option<SharedStore> {
        let (store, _) =
            self.open().store.as_ref().map(|(store, driver)| (Arc::clone(store), driver))?;
        Some(Arc::new(Driven { store, queued: Arc::clone(&self.queued) }))
    }

    fn crash(&self) {
        let mut open = self.open();
        open.crashes += 1;
        let copy = self.disk.path().join(open.crashes.to_string());
        if let Err(error) = self.crash_into(&mut open, &copy) {
            let why = format!("the disk cannot be copied: {:?}", error.kind());
            self.log.add(What::Broken { why });
        }
        open.store = None;
        open.directory = copy;
    }

    fn restart(&self) -> Result<(), String> {
        let mut open = self.open();
        let opened = EmbeddedStore::builder(&open.directory)
            .cache_bytes(CACHE_BYTES)
            .hot_bytes(CACHE_BYTES)
            .clock(self.clock.clone())
            .name_all_every(NAME_ALL_EVERY)
            .open_driven();
        let (store, driver) = opened.map_err(|error| error.to_string())?;
        open.store = Some((Arc::new(store), driver));
        Ok(())
    }

    fn apply(&self) {
        if let Some((_, driver)) = &mut self.open().store {
            driver.apply();
        }
        self.say("the log is brought over to the engine".to_owned());
    }

    fn fail_next(&self) {
        if let Some((_, driver)) = &self.open().store {
            driver.fail();
        }
        self.say("from here on nothing can be written".to_owned());
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").finish_non_exhaustive()
    }
}

/// The files of the log and the watermark.
fn log_of(directory: &Path) -> io::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(directory.join(LOG))? {
        let entry = entry?;
        files.insert(Path::new(LOG).join(entry.file_name()), std::fs::read(entry.path())?);
    }
    files.insert(WATERMARK.into(), std::fs::read(directory.join(WATERMARK))?);
    Ok(files)
}

/// Leaves only a part of what was written to the log since, as if the machine had lost its power
/// meanwhile.
fn tear(before: &BTreeMap<PathBuf, Vec<u8>>, copy: &Path, draw: &Draw) -> io::Result<()> {
    for (name, old) in before {
        let path = copy.join(name);
        let new = std::fs::read(&path)?;
        if name == Path::new(WATERMARK) {
            // It is written after the log.
            std::fs::write(&path, old)?;
            continue;
        }
        let same = new.iter().zip(old).take_while(|(new, old)| new == old).count();
        let written = (new.len() - same) as u64;
        let kept = same + usize::try_from(draw.below(written + 1)).unwrap_or_default();
        let mut torn: Vec<u8> = new.iter().copied().take(kept).collect();
        torn.extend(old.iter().skip(kept));
        std::fs::write(&path, torn)?;
    }
    Ok(())
}

/// Copies a folder with all that is in it.
fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The store, and a signal for the writer: it has no thread.
struct Driven {
    store: Arc<EmbeddedStore>,
    queued: Arc<Notify>,
}

impl Driven {
    /// A call queues what it writes when it is polled first.
    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        let first = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
        self.queued.notify_one();
        match first {
            Poll::Ready(result) => result,
            Poll::Pending => call.await,
        }
    }
}

impl Records for Driven {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        self.call(Records::apply(&*self.store, step)).await
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        Records::get(&*self.store, id).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        Records::settled(&*self.store, id, fence).await
    }
}

impl Maintenance for Driven {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        Maintenance::list(&*self.store, query).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        Maintenance::stats(&*self.store).await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.call(Maintenance::sweep(&*self.store, limit)).await
    }

    async fn ready(&self) -> StoreResult<()> {
        Maintenance::ready(&*self.store).await
    }

    async fn health(&self) -> StoreResult<Health> {
        Maintenance::health(&*self.store).await
    }
}
