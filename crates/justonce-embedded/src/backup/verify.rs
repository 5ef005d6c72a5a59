//! Reads everything of a store or a backup, and changes nothing.

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use justonce_core::{RecordId, StoreErrorKind, Timestamp, codec};

use super::error::BackupError;
use super::list::{ENGINE, List, MANIFEST};
use super::progress::{Counted, Progress};
use super::restore::listed;
use crate::check::{self, Manifest, Tried};
use crate::directory_lock::DirectoryLock;
use crate::disk::Disk;
use crate::error::OpenError;
use crate::open::DATABASE;
use crate::wal;
use crate::watermark::Watermark;
use crate::write::DiskOp;

/// What was read, and what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreReport {
    /// When it was made, if it is a backup.
    pub taken_at: Option<Timestamp>,
    /// Tables and blob files.
    pub files: u64,
    /// How large they are together.
    pub bytes: u64,
    /// Records and tombstones in the storage engine that could be read.
    pub records: u64,
    /// Rows of the expiry index.
    pub index_rows: u64,
    /// The callers' own rows.
    pub rows: u64,
    /// Batches that are in the write-ahead log only.
    pub logged: u64,
    /// Records that cannot be read.
    pub damaged_records: Vec<RecordId>,
    /// What else is wrong, with the file that it is about.
    pub problems: Vec<String>,
}

impl StoreReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.damaged_records.is_empty() && self.problems.is_empty()
    }
}

/// Reads everything of a store that nobody has open, or of a backup: every file whole, every
/// record, every row of the index, and the write-ahead log. Nothing in the directory is changed.
/// Blocks meanwhile.
///
/// ```
/// use justonce_embedded::EmbeddedStore;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// drop(EmbeddedStore::open(&path)?);
/// let report = justonce_embedded::backup::check(&path, &mut |_| {})?;
/// assert!(report.is_good());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If it is neither a store nor a backup, a process has it open, or it cannot be read. What is
/// damaged is no error but in the report.
pub fn check(
    path: impl AsRef<Path>,
    tell: &mut dyn FnMut(Progress),
) -> Result<StoreReport, BackupError> {
    let path = path.as_ref();
    let io = |error| BackupError::io("cannot read", path, error);
    let mut progress = Counted { now: Progress::default(), tell };
    let mut report = StoreReport::default();
    let has = |name: &str| path.join(name).exists();
    if List::read(path).map_err(io)?.is_some() && !has(DATABASE) {
        return backup(path, report, &mut progress);
    }
    if !has(DATABASE) && (has(ENGINE) || !has(MANIFEST)) {
        let what = "it is neither a store nor a whole backup".to_owned();
        return Err(BackupError::NotABackup { directory: path.to_owned(), what });
    }
    let _lock = DirectoryLock::acquire_if_there(path)?;
    let mark = Watermark::read(path).map_err(io)?;
    if mark == 0 && path.join("watermark").metadata().is_ok_and(|found| found.len() > 0) {
        report.problems.push(format!("{} is damaged", path.join("watermark").display()));
    }
    contents(path, &path.join(DATABASE), mark, &mut report, &mut progress).map_err(io)?;
    Ok(report)
}

/// A backup: its files against its list, then what is in them.
fn backup(
    path: &Path,
    mut report: StoreReport,
    progress: &mut Counted<'_>,
) -> Result<StoreReport, BackupError> {
    let io = |error| BackupError::io("cannot read", path, error);
    let list = listed(path)?;
    report.taken_at = Some(list.taken_at);
    progress.now.total += list.bytes();
    for file in &list.files {
        let there = path.join(&file.name);
        let is_good = match (there.metadata(), check::whole_sum(&there)) {
            (Ok(found), Ok(sum)) => found.len() == file.bytes && sum == file.sum,
            (Err(error), _) | (_, Err(error)) if error.kind() != ErrorKind::NotFound => {
                return Err(io(error));
            }
            _ => false,
        };
        if !is_good {
            let text = format!("{} is missing, or not as it was backed up", there.display());
            report.problems.push(text);
        }
        progress.add(file.bytes);
    }
    contents(path, &path.join(ENGINE), list.batch, &mut report, progress).map_err(io)?;
    Ok(report)
}

/// What is in the storage engine and the write-ahead log.
fn contents(
    directory: &Path,
    engine: &Path,
    mark: u64,
    report: &mut StoreReport,
    progress: &mut Counted<'_>,
) -> io::Result<()> {
    if !engine.try_exists()? {
        report.problems.push(format!("{} is missing", engine.display()));
        return Ok(());
    }
    let manifest = Manifest::read(directory)?;
    if manifest.is_none() && directory.join(MANIFEST).try_exists()? {
        report.problems.push(format!("{} is damaged", directory.join(MANIFEST).display()));
    }
    files(engine, report, progress)?;
    let scratch = Scratch::new()?;
    let mut damaged = BTreeSet::new();
    let tried = check::try_in(scratch.0.join("engine"), engine, |disk, tried| {
        read(disk, &tried, report, &mut damaged);
        Ok(tried)
    })?;
    let logged = tried.as_ref().map(|tried| tried.log.row.logged).ok();
    let whole = check::complete(directory, engine, mark, tried, manifest.is_some());
    report.problems.extend(whole.err().map(|error| said(&error)));
    if let Some(Ok(batches)) = logged.map(|after| wal::read(directory, after)).transpose()? {
        report.logged = batches.len() as u64;
        for write in batches.iter().flat_map(|batch| &batch.writes) {
            if let Some(DiskOp::Put(bytes)) = &write.op
                && codec::decode(&write.id, bytes).is_err()
            {
                damaged.insert(write.id);
            }
        }
    }
    report.damaged_records = damaged.into_iter().collect();
    Ok(())
}

/// Compares every table and blob file with the engine's checksum of it.
fn files(engine: &Path, report: &mut StoreReport, progress: &mut Counted<'_>) -> io::Result<()> {
    let mut found = Vec::new();
    let keyspaces = match check::keyspaces(engine) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            report.problems.push(format!("{} is missing", engine.join("keyspaces").display()));
            return Ok(());
        }
        keyspaces => keyspaces?,
    };
    for (_, folder) in keyspaces {
        match check::summed(&folder) {
            Ok(files) => found.extend(files),
            Err(error) => report.problems.push(said(&error)),
        }
    }
    let sizes: Vec<_> =
        found.iter().map(|(path, _)| path.metadata().map_or(0, |file| file.len())).collect();
    progress.now.total += sizes.iter().sum::<u64>();
    for ((path, sum), bytes) in found.into_iter().zip(sizes) {
        match check::whole_sum(&path) {
            Ok(seen) if seen == sum => {}
            Ok(_) => report.problems.push(format!("{} is damaged", path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                report.problems.push(format!("{} is missing", path.display()));
            }
            Err(error) => return Err(error),
        }
        report.files += 1;
        report.bytes += bytes;
        progress.add(bytes);
    }
    Ok(())
}

/// Reads every record, every row of the index, and all of the callers' rows.
fn read(disk: &Disk, tried: &Tried, report: &mut StoreReport, damaged: &mut BTreeSet<RecordId>) {
    for row in disk.records_after(None) {
        match row {
            Ok((_, Ok(_))) => report.records += 1,
            Ok((id, Err(_))) => drop(damaged.insert(id)),
            Err(error) => {
                report.problems.push(format!("the records cannot all be read: {error}"));
                break;
            }
        }
    }
    let mut look_up = |id: &RecordId| match disk.record(id) {
        Err(error) if error.kind() == StoreErrorKind::Damaged => drop(damaged.insert(*id)),
        _ => {}
    };
    // These have the names of what is settled, and of what is not, also where the tree of the
    // records cannot be read.
    for row in disk.expired([0; 16], Timestamp::MAX) {
        match row {
            Ok(Some((_, ids))) => {
                report.index_rows += 1;
                ids.iter().for_each(&mut look_up);
            }
            Ok(None) => report.problems.push("a row of the expiry index is damaged".to_owned()),
            Err(error) => {
                report.problems.push(format!("the expiry index cannot be read: {error}"));
                break;
            }
        }
    }
    tried.log.unsettled.iter().for_each(&mut look_up);
    match disk.count_rows() {
        Ok(count) => report.rows = count,
        Err(error) => report.problems.push(format!("the callers' rows cannot be read: {error}")),
    }
}

/// What is wrong, without what to do about it.
fn said(error: &OpenError) -> String {
    let text = error.to_string();
    text.split(" Nothing was changed.").next().unwrap_or(&text).to_owned()
}

/// A folder of its own in the system's place for temporary files.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Self> {
        let place = std::env::temp_dir();
        let process = std::process::id();
        let mut number = 0_u32;
        loop {
            let path = place.join(format!("justonce-check-{process}-{number}"));
            // Somebody else's is never used.
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                made => return made.map(|()| Self(path)),
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
