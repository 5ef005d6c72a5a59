//! Opening an embedded store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{Builder, JoinHandle};

use justonce_core::Clock;
use justonce_core::store::HealthWarning;

use crate::applier::{Applied, Applier};
use crate::bounds::Bounds;
use crate::check::{self, Found, Manifest, ManifestWriter};
use crate::clock::SystemClock;
use crate::clock_floor;
use crate::commit::{GroupCommit, Sink as _};
use crate::commit_delay::CommitDelay;
use crate::directory_lock::DirectoryLock;
use crate::disk::Disk;
use crate::error::{CloseError, OpenError};
use crate::files::{Modes, create_durable_folder, frozen_folder, private};
use crate::journal::{self, NAME_ALL_EVERY};
use crate::recover::{catch_up, losses, recovered, time};
use crate::refresh::RefreshOnDrop;
use crate::state::State;
use crate::step::Stepper;
use crate::sweep::SweepPosition;
use crate::wal::{self, ApplyQueue, Heading, Wal};
use crate::watermark::Watermark;
use crate::write::Write;
use crate::writer::Writer;

/// The default size of the block cache, in bytes.
const DEFAULT_CACHE_BYTES: u64 = 256 * 1024 * 1024;
/// The default size of the cache of settled records, in bytes.
const DEFAULT_HOT_BYTES: u64 = 64 * 1024 * 1024;
/// The folder of the storage engine inside the directory.
pub(crate) const DATABASE: &str = "records";
/// Where it is made.
const NEW_DATABASE: &str = "records.new";
/// Its lock. Nothing is in it, so one that is lost is made anew.
pub(crate) const ENGINE_LOCK: &str = "lock";

/// A durable store in this process.
///
/// Dropping it closes it: what is queued is written, claims that were only in memory too. That
/// blocks for a moment; so does opening. [`close`](Self::close) does the same, and says what could
/// not be written.
///
/// ```
/// use justonce_embedded::EmbeddedStore;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a");
/// // The default.
/// let store = EmbeddedStore::open(&path)?;
/// # drop(store);
///
/// // Customised.
/// let store = EmbeddedStore::builder(&path)
///     .cache_bytes(1024 * 1024 * 1024)
///     .hot_bytes(128 * 1024 * 1024)
///     .open()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct EmbeddedStore(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) state: Arc<State>,
    pub(crate) commits: GroupCommit<Write>,
    pub(crate) sweep_position: Mutex<SweepPosition>,
    /// Held while rows are written: there is one writer at a time.
    pub(crate) row_writer: Mutex<()>,
    /// What operators should know; it does not change while the store is open.
    pub(crate) warnings: Vec<HealthWarning>,
    /// Whether a backup is being begun or sent.
    pub(crate) backing_up: Arc<AtomicBool>,
    pub(crate) apply_queue: Arc<ApplyQueue>,
    pub(crate) applier: Mutex<Option<JoinHandle<Option<ManifestWriter>>>>,
    directory: PathBuf,
    /// How closing ended, once it has.
    pub(crate) closed: OnceLock<Result<(), CloseError>>,
    /// Dropped after the state, and so after the storage engine: the files that the engine makes
    /// until then are listed too.
    pub(crate) refresh: RefreshOnDrop,
    _lock: DirectoryLock,
}

/// The settings of an [`EmbeddedStore`].
#[must_use = "a builder does nothing until `open`"]
pub struct EmbeddedBuilder {
    directory: PathBuf,
    cache_bytes: u64,
    hot_bytes: u64,
    bounds: Bounds,
    clock: Option<Box<dyn Clock>>,
    delay: CommitDelay,
    reset_clock_floor: bool,
    accept_lost: bool,
    pub(crate) name_all_every: u64,
    /// Whether the storage engine works in the background.
    pub(crate) workers: bool,
}

/// A store whose threads have not been started.
pub(crate) struct Prepared {
    pub(crate) writer: Writer,
    pub(crate) applier: Applier,
    pub(crate) warnings: Vec<HealthWarning>,
    pub(crate) directory: PathBuf,
    pub(crate) lock: DirectoryLock,
}

/// What works beside the callers of a store, and the queue between the two threads.
pub(crate) struct Threads {
    pub(crate) commits: GroupCommit<Write>,
    pub(crate) apply_queue: Arc<ApplyQueue>,
    pub(crate) applier: Option<JoinHandle<Option<ManifestWriter>>>,
}

impl EmbeddedStore {
    /// Opens a directory, and creates it if there is none.
    ///
    /// # Errors
    ///
    /// If another process owns it, it cannot be read or written, or it is damaged.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder(directory).open()
    }

    /// Starts with other settings.
    pub fn builder(directory: impl AsRef<Path>) -> EmbeddedBuilder {
        EmbeddedBuilder {
            directory: directory.as_ref().to_owned(),
            cache_bytes: DEFAULT_CACHE_BYTES,
            hot_bytes: DEFAULT_HOT_BYTES,
            bounds: Bounds::default(),
            clock: None,
            delay: CommitDelay::adaptive(),
            reset_clock_floor: false,
            accept_lost: false,
            name_all_every: NAME_ALL_EVERY,
            workers: true,
        }
    }

    /// How much disk the store takes, in bytes.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        let log = wal::bytes(&self.0.directory).unwrap_or_default();
        self.0.state.disk.bytes() + log
    }
}

impl EmbeddedBuilder {
    /// The block cache of the storage engine. A fifth of the memory is a good size where records
    /// are many. Default: 256 MiB.
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// The size of the cache of recently used settled records. Default: 64 MiB.
    pub fn hot_bytes(mut self, bytes: u64) -> Self {
        self.hot_bytes = bytes;
        self
    }

    /// How much the store keeps in memory beside its caches. Default: [`Bounds::default`].
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Another clock, for tests. Default: [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Another commit delay. Default: [`CommitDelay::adaptive`].
    pub fn commit_delay(mut self, delay: CommitDelay) -> Self {
        self.delay = delay;
        self
    }

    /// Brings the store's time back to the machine's clock, this once. Without it, time never lies
    /// before what it was when the store was last open; so one opening under a clock that is ahead
    /// moves it for good, and [`health`](justonce_core::store::Maintenance::health) warns
    /// (`clock-floor-ahead`). An empty file `reset-clock-floor` in the directory does the same,
    /// once.
    ///
    /// Make sure that the clock is right now. What has a retention keeps it for longer, by as much
    /// as the time goes back. Claims that were taken under the wrong clock have lapsed. A UUIDv7
    /// key that was issued before, and finds nothing, stays refused where late arrivals are.
    ///
    /// ```
    /// use justonce_embedded::EmbeddedStore;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a");
    /// let store = EmbeddedStore::builder(&path).reset_clock_floor().open()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset_clock_floor(mut self) -> Self {
        self.reset_clock_floor = true;
        self
    }

    /// Takes what a store that was restored from a backup may have lost for not executed: begins
    /// that find nothing are new again, and the warning `restored-from-backup` ends. An empty file
    /// `accept-lost` in the directory does the same.
    ///
    /// ```
    /// use justonce_embedded::EmbeddedStore;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a");
    /// let store = EmbeddedStore::builder(&path).accept_lost().open()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn accept_lost(mut self) -> Self {
        self.accept_lost = true;
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    ///
    /// If another process owns the directory, it cannot be read or written, or it is damaged.
    pub fn open(mut self) -> Result<EmbeddedStore, OpenError> {
        let Prepared { writer, applier, warnings, directory, lock } = self.prepare()?;
        let io = |what| {
            let directory = &directory;
            move |error| OpenError::io(what, directory, error)
        };
        let (state, apply_queue) = (Arc::clone(&applier.state), Arc::clone(&applier.apply_queue));
        let applier = Builder::new()
            .name("justonce-apply".into())
            .spawn(move || applier.run())
            .map_err(io("cannot start the applier thread"))?;
        let commits =
            GroupCommit::start(writer, self.delay).map_err(io("cannot start the writer thread"))?;
        for HealthWarning { name, message } in &warnings {
            tracing::warn!(target: "justonce::store", name, "{message}");
        }
        let threads = Threads { commits, apply_queue, applier: Some(applier) };
        let inner = Inner::new(state, threads, warnings, directory, lock);
        Ok(EmbeddedStore(Arc::new(inner)))
    }

    /// Brings everything to where only its threads are missing.
    pub(crate) fn prepare(&mut self) -> Result<Prepared, OpenError> {
        let directory = &self.directory;
        let io = |what| move |error| OpenError::io(what, directory, error);
        create_durable_folder(directory).map_err(io("cannot create the directory"))?;
        let modes = Modes::of(directory).map_err(io("cannot look through the directory"))?;
        let mut warnings: Vec<HealthWarning> = modes.warnings().collect();
        let reset = self.reset_clock_floor
            || clock_floor::is_reset_requested(directory)
                .map_err(io("cannot look into the directory"))?;
        let mut lock = DirectoryLock::acquire(directory)?;
        let open = if self.workers { Disk::open } else { Disk::open_without_workers };
        let open = |engine: &Path| open(engine, self.cache_bytes);
        let Opened { disk, manifest_writer, mark } = open_disk(directory, open, modes)?;
        lock.sign().map_err(io("cannot write the lock file"))?;
        let watermark = Watermark::open(directory).map_err(io("cannot open the watermark"))?.0;
        let log = catch_up(directory, &disk, mark, self.name_all_every)?;
        let last = Heading {
            number: log.row.logged,
            now: log.row.now,
            fences_reserved: log.row.fences_reserved,
        };
        let clock = self.clock.take().unwrap_or_else(|| Box::new(SystemClock::new()));
        let mut time = time(directory, &disk, clock, log.row.now, reset)?;
        warnings.extend(clock_floor::warning(directory, time.ahead));
        time.losses = losses(directory, &disk, self.accept_lost)?;
        warnings.extend(time.losses.warning(directory));
        let state = Arc::new(recovered(disk, time, &log, self.hot_bytes, self.bounds)?);
        let apply_queue = Arc::new(ApplyQueue::starting_at(last.number));
        let wal =
            Wal::open(directory, Arc::clone(&apply_queue)).map_err(io("cannot open the log"))?;
        let of = || (Arc::clone(&state), Arc::clone(&apply_queue));
        let (state_of, queue_of) = of();
        let mut writer = Writer { state: state_of, wal, watermark, apply_queue: queue_of, last };
        // The first batch reserves fences beyond all that were ever given.
        let mut first = Vec::new();
        writer.commit(&mut first).map_err(|error| OpenError::engine(directory, error))?;
        writer.committed(first);
        // The time that was brought back is on disk.
        clock_floor::clear_reset_request(directory)
            .map_err(io("cannot remove the file that asks for a reset"))?;
        let (number, done) = (log.number, log.row.done);
        let name_all_every = self.name_all_every;
        let applied = Applied { number, done, names_all_next: true, name_all_every };
        let (state_of, queue_of) = of();
        let applier = Applier {
            state: state_of,
            apply_queue: queue_of,
            applied,
            manifest_writer: Some(manifest_writer),
        };
        Ok(Prepared { writer, applier, warnings, directory: directory.clone(), lock })
    }
}

/// The storage engine, of which it is known that it has everything.
struct Opened {
    disk: Disk,
    manifest_writer: ManifestWriter,
    /// The last batch that is known to be acknowledged.
    mark: u64,
}

/// Opens the storage engine, after looking whether everything is there. Nothing is changed before.
fn open_disk(
    directory: &Path,
    open: impl Fn(&Path) -> Result<Disk, fjall::Error>,
    modes: Modes,
) -> Result<Opened, OpenError> {
    let io = |what| move |error| OpenError::io(what, directory, error);
    let refused = |error: fjall::Error| OpenError::engine(directory, error);
    let (engine, made) = (directory.join(DATABASE), directory.join(NEW_DATABASE));
    let mark = Watermark::read(directory).map_err(io("cannot read the watermark"))?;
    let found = check::inspect(directory, &engine, mark)?;
    let frozen = frozen_folder(&engine);
    let left: &[&Path] = match found {
        Found::Store(..) => &[&made, &frozen],
        Found::Nothing => &[&made, &frozen, &engine],
    };
    check::tidy(directory, left).map_err(io("cannot tidy up"))?;
    let known = match found {
        Found::Store(known, torn) => {
            if let Some(torn) = torn {
                torn.cut_off(&engine).map_err(io("cannot cut off the end of a journal"))?;
            }
            known
        }
        Found::Nothing => {
            Disk::create(&engine, &made).map_err(refused)?;
            Manifest::default()
        }
    };
    let lock = engine.join(ENGINE_LOCK);
    private().append(true).create(true).open(lock).map_err(io("cannot make the engine's lock"))?;
    let disk = open(&engine).map_err(refused)?;
    // The list says that there are marks, so they come before it.
    if disk.marks().map_err(OpenError::Damaged)?.contains(&None) {
        let log = journal::recover(disk.log()).map_err(OpenError::Damaged)?;
        disk.begin_marks(log.number).map_err(refused)?;
    }
    let manifest_writer = ManifestWriter::start(directory, &engine, known, modes);
    let manifest_writer = manifest_writer.map_err(io("cannot write the manifest"))?;
    Ok(Opened { disk, manifest_writer, mark })
}

impl Inner {
    pub(crate) fn new(
        state: Arc<State>,
        threads: Threads,
        warnings: Vec<HealthWarning>,
        directory: PathBuf,
        lock: DirectoryLock,
    ) -> Self {
        let Threads { commits, apply_queue, applier } = threads;
        Self {
            state,
            commits,
            sweep_position: Mutex::default(),
            row_writer: Mutex::default(),
            warnings,
            backing_up: Arc::default(),
            apply_queue,
            applier: Mutex::new(applier),
            directory,
            closed: OnceLock::new(),
            refresh: RefreshOnDrop::default(),
            _lock: lock,
        }
    }

    pub(crate) fn stepper(&self) -> Stepper<'_> {
        Stepper { state: &self.state, commits: &self.commits }
    }

    /// The folder of the storage engine.
    pub(crate) fn engine(&self) -> PathBuf {
        self.directory.join(DATABASE)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").finish_non_exhaustive()
    }
}

impl fmt::Debug for EmbeddedBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedBuilder")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}
