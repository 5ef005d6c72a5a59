//! A store from a backup.
//!
//! Everything is written into the directory of the store itself, because that may be a file system
//! of its own. The marker comes first, then the manifest: without the storage engine's folder, no
//! release from this one on opens a directory with the first, and no earlier one with the second.
//! The engine's folder gets its name last.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use justonce_core::{Clock, Entry, State, StoreErrorKind, StoreResult, Timestamp};
use xxhash_rust::xxh3::Xxh3;

use super::error::BackupError;
use super::list::{ENGINE, LIST, List, Listed, MANIFEST};
use super::progress::{Counted, Progress};
use crate::applier::Applied;
use crate::check::{self, Manifest, RESTORING};
use crate::clock::SystemClock;
use crate::directory_lock::DirectoryLock;
use crate::disk::Disk;
use crate::error::OpenError;
use crate::files::{
    LOST_AND_FOUND, Modes, create_durable_folder, create_folder, create_private, private,
    sync_directory, sync_if_readable, walk,
};
use crate::journal::{self, NAME_ALL_EVERY};
use crate::open::{DATABASE, ENGINE_LOCK};
use crate::restored::{Loss, fences_after};
use crate::utc::utc;
use crate::wal::WalBatch;
use crate::watermark::Watermark;

/// How old a key may be when it is first used, by default: a form that is sent an hour after it was
/// opened.
const KEY_AGE: Duration = Duration::from_secs(60 * 60);
/// How far the clocks of those who issue keys may be wrong, by default.
const CLOCK_SKEW: Duration = Duration::from_secs(10);
/// The storage engine's folder until it is whole.
const ENGINE_UNTIL_WHOLE: &str = "records.restoring";
const WATERMARK: &str = "watermark";
/// What may be in a directory beside a store.
const NOT_OURS: [&str; 2] = [LOST_AND_FOUND, "owner.lock"];
/// What the engine may keep in memory meanwhile.
const CACHE_BYTES: u64 = 16 * 1024 * 1024;
const CHUNK_BYTES: usize = 256 * 1024;

/// How a store is restored.
///
/// ```
/// use justonce_embedded::backup::RestoreOptions;
/// use std::time::Duration;
///
/// // The default.
/// let options = RestoreOptions::default();
///
/// // Customised: keys are used at once, and clients' clocks are good.
/// let options = RestoreOptions::default()
///     .key_age(Duration::from_secs(60))
///     .clock_skew(Duration::from_secs(1));
/// ```
pub struct RestoreOptions {
    key_age: Duration,
    clock_skew: Duration,
    hold_undated: Duration,
    accept_lost: bool,
    taken_at: Option<Timestamp>,
    clock: Box<dyn Clock>,
}

impl Default for RestoreOptions {
    fn default() -> Self {
        Self {
            key_age: KEY_AGE,
            clock_skew: CLOCK_SKEW,
            hold_undated: Duration::ZERO,
            accept_lost: false,
            taken_at: None,
            clock: Box::new(SystemClock::new()),
        }
    }
}

impl RestoreOptions {
    /// How old a key that carries its date (UUIDv7) may be when it is first used. Default: one
    /// hour. Keys that were issued by so much before the backup may have been used after it.
    #[must_use]
    pub const fn key_age(mut self, age: Duration) -> Self {
        self.key_age = age;
        self
    }

    /// How far the clocks of those who issue keys may be ahead or behind. Default: ten seconds.
    /// For so long after the restore, new operations with such keys become unknown too.
    #[must_use]
    pub const fn clock_skew(mut self, skew: Duration) -> Self {
        self.clock_skew = skew;
        self
    }

    /// For so long after the restore, operations whose keys carry no date and are not found become
    /// unknown too: all of them, also the new ones. Default: not at all.
    #[must_use]
    pub const fn hold_undated(mut self, time: Duration) -> Self {
        self.hold_undated = time;
        self
    }

    /// Takes what was lost for not executed: what is not found is new. Default: no.
    #[must_use]
    pub const fn accept_lost(mut self) -> Self {
        self.accept_lost = true;
        self
    }

    /// When the backup was made, where the clock of its machine was wrong. Default: as it says.
    #[must_use]
    pub const fn taken_at(mut self, moment: Timestamp) -> Self {
        self.taken_at = Some(moment);
        self
    }

    /// Another clock, for tests. Default: [`SystemClock`](crate::SystemClock).
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self
    }
}

impl fmt::Debug for RestoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestoreOptions")
            .field("key_age", &self.key_age)
            .field("clock_skew", &self.clock_skew)
            .field("hold_undated", &self.hold_undated)
            .field("accept_lost", &self.accept_lost)
            .finish_non_exhaustive()
    }
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// When the backup was made.
    pub taken_at: Timestamp,
    /// When it was restored.
    pub restored_at: Timestamp,
    /// Operations that are not found and whose keys were issued in this time become unknown;
    /// nothing if what was lost was accepted.
    pub held: Option<(Timestamp, Timestamp)>,
    /// Until when operations whose keys carry no date do so too.
    pub undated_until: Option<Timestamp>,
    /// Whether the backup is of a store that had itself been restored, and still holds what it may
    /// have lost then. [`RestoreOptions::accept_lost`] does not end that.
    pub held_before: bool,
    /// Files that were damaged in the store of which the backup was made.
    pub damaged: Vec<String>,
}

/// Makes a store from a backup, in a directory that is empty or does not exist. Blocks meanwhile.
///
/// Every file is compared with the backup's list. Cut short, by an error or by the end of the
/// process, it leaves no directory that opens as a store, and can be repeated.
///
/// ```
/// use justonce_embedded::EmbeddedStore;
/// use justonce_embedded::backup::{RestoreOptions, restore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let place = tempfile::tempdir()?;
/// # let (data, backup) = (place.path().join("data"), place.path().join("backup"));
/// # let restored = place.path().join("restored");
/// EmbeddedStore::open(&data)?.backup(&backup).await?;
/// restore(&backup, &restored, &RestoreOptions::default(), &mut |_| {})?;
/// let store = EmbeddedStore::open(&restored)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If it is no whole backup, the directory is not empty, or something cannot be written.
pub fn restore(
    backup: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: &RestoreOptions,
    tell: &mut dyn FnMut(Progress),
) -> Result<Restored, BackupError> {
    let (backup, to) = (backup.as_ref(), to.as_ref());
    let mut list = listed(backup)?;
    list.taken_at = options.taken_at.unwrap_or(list.taken_at);
    let now = options.clock.now();
    if list.taken_at > now.after(options.clock_skew) {
        return Err(BackupError::Clock(format!(
            "the backup says that it was made at {}, and by this machine's clock it is {}: one of \
             them is wrong. Set the clock right, or say when the backup was made",
            utc(list.taken_at),
            utc(now)
        )));
    }
    let io = |error| BackupError::io("cannot use", to, error);
    let made = !to.try_exists().map_err(io)?;
    is_free(to)?;
    create_durable_folder(to).map_err(io)?;
    let modes = Modes::of(to).map_err(io)?;
    let lock = DirectoryLock::acquire(to)?;
    begin(to)?;
    let mut restoring = Restoring { backup, to, list, options, modes };
    let restored = restoring.run(tell);
    if restored.is_err() {
        // What is left does not open. Nobody else may begin before it is gone.
        let _ = if made { std::fs::remove_dir_all(to) } else { clear(to) };
    }
    drop(lock);
    restored
}

/// The list of a whole backup.
pub(super) fn listed(backup: &Path) -> Result<List, BackupError> {
    let io = |error| BackupError::io("cannot read the list of", backup, error);
    match List::read(backup).map_err(io)? {
        Some(list) => list.map_err(|what| BackupError::not_a_backup(backup, what)),
        None => {
            let what = format!(
                "it has no list of files (`{LIST}`), so it is none, or one that was not finished"
            );
            Err(BackupError::not_a_backup(backup, what))
        }
    }
}

/// Makes sure that there is no store, and nothing but what a restore that was cut short has left.
fn is_free(to: &Path) -> Result<(), BackupError> {
    let io = |error| BackupError::io("cannot use", to, error);
    let occupied = |what| BackupError::Occupied { directory: to.to_owned(), what };
    if to.join(DATABASE).try_exists().map_err(io)? {
        return Err(occupied("a store"));
    }
    if !to.try_exists().map_err(io)? || to.join(RESTORING).try_exists().map_err(io)? {
        return Ok(());
    }
    for entry in std::fs::read_dir(to).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        if !NOT_OURS.iter().any(|other| name == *other) {
            return Err(occupied("something"));
        }
    }
    Ok(())
}

/// Makes sure that there is nothing, removes what a restore that was cut short has left, and sets
/// the marker.
fn begin(to: &Path) -> Result<(), BackupError> {
    let io = |error| BackupError::io("cannot use", to, error);
    is_free(to)?;
    if to.join(RESTORING).try_exists().map_err(io)? {
        clear(to).map_err(io)?;
        is_free(to)?;
    }
    let marked = create_private(&to.join(RESTORING)).and_then(|file| file.sync_all());
    marked.and_then(|()| sync_directory(to)).map_err(io)
}

/// Removes what a restore has written; the marker last.
fn clear(to: &Path) -> io::Result<()> {
    for name in [ENGINE_UNTIL_WHOLE, "trial", MANIFEST, "manifest.new", WATERMARK, RESTORING] {
        let path = to.join(name);
        let removed =
            if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    sync_directory(to)
}

/// A restore under way.
struct Restoring<'a> {
    backup: &'a Path,
    to: &'a Path,
    list: List,
    options: &'a RestoreOptions,
    modes: Modes,
}

impl Restoring<'_> {
    fn run(&mut self, tell: &mut dyn FnMut(Progress)) -> Result<Restored, BackupError> {
        let engine = self.to.join(ENGINE_UNTIL_WHOLE);
        let total = self.list.bytes();
        let mut progress = Counted { now: Progress { done: 0, total }, tell };
        for file in &self.list.files {
            let target = match Path::new(&file.name).strip_prefix(ENGINE) {
                Ok(below) => engine.join(below),
                Err(_) => self.to.join(&file.name),
            };
            copy(file, &self.backup.join(&file.name), &target, &mut progress).map_err(
                |failed| match failed {
                    Failed::Io(error) => BackupError::io("cannot copy to", &target, error),
                    Failed::Changed => {
                        let what = format!("{} is damaged or missing in it", file.name);
                        BackupError::not_a_backup(self.backup, what)
                    }
                },
            )?;
        }
        // What the engine makes of it is all that was acknowledged.
        let found = check::inspect(self.to, &engine, self.list.batch)?;
        if matches!(found, check::Found::Nothing) {
            let what = "it has no store in it";
            return Err(BackupError::not_a_backup(self.backup, what));
        }
        let (loss, held_before, number) = self.change(&engine)?;
        self.seal(&engine, number)
            .map_err(|error| BackupError::io("cannot write", self.to, error))?;
        let accepted = self.options.accept_lost;
        let undated = !accepted && !self.options.hold_undated.is_zero();
        Ok(Restored {
            taken_at: loss.taken_at,
            restored_at: loss.restored_at,
            held: (!accepted).then_some((loss.issued_from, loss.issued_until)),
            undated_until: undated.then_some(loss.undated_until),
            held_before,
            damaged: std::mem::take(&mut self.list.damaged),
        })
    }

    /// Writes down what may be lost, and lets the fences go on above all that were given. Returns
    /// the loss, whether there was one before, and the last batch of the log.
    fn change(&self, engine: &Path) -> Result<(Loss, bool, u64), BackupError> {
        let refused = |error: String| OpenError::engine(self.to, error);
        let damaged = OpenError::Damaged;
        let lock = private().append(true).create(true).open(engine.join(ENGINE_LOCK));
        lock.map_err(|error| OpenError::io("cannot make the engine's lock", engine, error))?;
        let disk = Disk::open(engine, CACHE_BYTES).map_err(|error| refused(error.to_string()))?;
        let log = journal::recover(disk.log()).map_err(damaged)?;
        let RestoreOptions { key_age, clock_skew, hold_undated, .. } = *self.options;
        let (taken_at, restored_at) = (self.list.taken_at, self.options.clock.now());
        let fences_reserved = fences_after(log.row.fences_reserved, restored_at.since(taken_at));
        let before = taken_at.as_millis().saturating_sub(
            u64::try_from(key_age.saturating_add(clock_skew).as_millis()).unwrap_or(u64::MAX),
        );
        let loss = Loss {
            taken_at,
            restored_at,
            issued_from: Timestamp::from_millis(before),
            issued_until: restored_at.after(clock_skew),
            undated_until: restored_at.after(hold_undated),
            last_change: last_change(&disk, log.row.now).map_err(damaged)?,
            fences_from: fences_reserved,
        };
        let mut losses = disk.losses().map_err(damaged)?;
        let held_before = !losses.is_empty();
        if !self.options.accept_lost {
            losses.add(loss);
            disk.set_losses(&losses).map_err(|error| refused(error.to_string()))?;
        }
        let number = log.row.logged + 1;
        let batch = WalBatch { number, now: log.row.now, fences_reserved, writes: Vec::new() };
        let unsettled = || log.unsettled.iter().copied().collect();
        let (number_before, done) = (log.number, log.row.done);
        let (names_all_next, name_all_every) = (false, NAME_ALL_EVERY);
        Applied { number: number_before, done, names_all_next, name_all_every }
            .write(&disk, &mut [batch], unsettled)
            .map_err(refused)?;
        Ok((loss, held_before, number))
    }

    /// Makes the directory a store.
    fn seal(&self, engine: &Path, number: u64) -> io::Result<()> {
        Watermark::open(self.to)?.0.set(number)?;
        Manifest::of(engine)?.write(self.to)?;
        self.modes.restrict()?;
        sync_directory(engine)?;
        for path in walk(engine, |_| false)? {
            if path.is_dir() {
                sync_directory(&path)?;
            }
        }
        // From here on it is one.
        std::fs::rename(engine, self.to.join(DATABASE))?;
        sync_directory(self.to)?;
        std::fs::remove_file(self.to.join(RESTORING))?;
        let whole: PathBuf = self.to.canonicalize()?;
        whole.parent().map_or(Ok(()), sync_if_readable)
    }
}

/// When anything unfinished was changed last: at the latest when the backup was made, unless the
/// time was brought back from one that lay ahead.
fn last_change(disk: &Disk, now: Timestamp) -> StoreResult<Timestamp> {
    let mut last = now;
    if disk.clock_reset_at()? == Timestamp::ZERO {
        return Ok(last);
    }
    for row in disk.records_after(None) {
        let (_, stored) = match row {
            Ok(row) => row,
            // What follows has no names: any of it may be from then.
            Err(error) if error.kind() == StoreErrorKind::Damaged => return Ok(Timestamp::MAX),
            Err(error) => return Err(error),
        };
        // A record that is damaged is never begun again.
        let Ok(stored) = stored else { continue };
        if let Entry::Record(record) = &stored.entry
            && matches!(record.state, State::InProgress(_) | State::Failed(_))
        {
            last = last.max(record.changed_at);
        }
    }
    Ok(last)
}

/// Why a file was not copied.
enum Failed {
    Io(io::Error),
    /// It is not the one that was listed.
    Changed,
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Copies a file, and compares it with the list.
fn copy(listed: &Listed, from: &Path, to: &Path, progress: &mut Counted<'_>) -> Result<(), Failed> {
    let mut from = match File::open(from) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(Failed::Changed),
        opened => opened?,
    };
    let mut folders: Vec<&Path> =
        to.ancestors().skip(1).take_while(|path| !path.exists()).collect();
    folders.reverse();
    folders.into_iter().try_for_each(create_folder)?;
    let mut to = create_private(to)?;
    let mut hasher = Xxh3::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut bytes = 0;
    loop {
        let count = from.read(&mut buffer)?;
        let Some(part) = buffer.get(..count).filter(|part| !part.is_empty()) else { break };
        hasher.update(part);
        to.write_all(part)?;
        bytes += part.len() as u64;
        progress.add(part.len() as u64);
    }
    if bytes != listed.bytes || hasher.digest128() != listed.sum {
        return Err(Failed::Changed);
    }
    Ok(to.sync_all()?)
}
