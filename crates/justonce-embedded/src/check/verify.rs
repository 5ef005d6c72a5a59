//! Compares what is in the directory with what must be.

use std::io;
use std::path::{Path, PathBuf};

use justonce_core::{StoreError, StoreErrorKind};

use super::manifest::{self, Known, Manifest};
use super::torn::TornEnd;
use super::trial::{self, Tried};
use super::version::{self, ReadError, Version};
use crate::error::OpenError;
use crate::files::walk;
use crate::journal;
use crate::wal;

/// The first bytes of the engine's own mark.
const ENGINE_VERSION: [u8; 4] = *b"FJL\x03";

/// The engine's journals.
const JOURNALS: &str = "*.jnl";

/// The marker of a restore, from its beginning to its end.
pub(crate) const RESTORING: &str = "restoring";
/// The list of a backup, in its directory.
pub(crate) const BACKUP_LIST: &str = "backup";

/// What is in a directory.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nothing that was ever acknowledged.
    Nothing,
    /// A store that has everything; what is known of its files, and what must be cut off before
    /// the engine opens it.
    Store(Manifest, Option<TornEnd>),
}

/// Inspects a directory and changes nothing in it. `engine` is the folder of the storage
/// engine, `mark` is the last batch that is known to be acknowledged.
///
/// # Errors
///
/// If something is missing or damaged: the message names it and says what to do.
pub(crate) fn inspect(directory: &Path, engine: &Path, mark: u64) -> Result<Found, OpenError> {
    let io = |error| OpenError::io("cannot look through the store", directory, error);
    let manifest = Manifest::read(directory).map_err(io)?;
    let log = wal::bytes(directory).map_err(io)?;
    let is_new = manifest.is_none() && mark == 0 && log == 0;
    if !engine.try_exists().map_err(io)? {
        if directory.join(RESTORING).try_exists().map_err(io)? {
            let what = "a restore into this directory was cut short: repeat it";
            return Err(OpenError::engine(directory, what));
        }
        // A folder of this name is no list.
        if directory.join(BACKUP_LIST).is_file() {
            let what = "it is a backup: make a store of it with `justonce store restore`";
            return Err(OpenError::engine(directory, what));
        }
        return if is_new { Ok(Found::Nothing) } else { Err(missing(engine)) };
    }
    match whole(directory, engine, mark, manifest.as_ref()) {
        // An earlier release was killed while it made it.
        Err(OpenError::Damaged(_)) if is_new && is_empty(engine).map_err(io)? => Ok(Found::Nothing),
        found => found,
    }
}

/// Whether nothing was ever written to the engine: journals without anything, and no tables but
/// those of the first keyspace, in which it lists the others.
fn is_empty(engine: &Path) -> io::Result<bool> {
    for path in walk(engine, |_| false)? {
        let below = path.strip_prefix(engine).unwrap_or(&path);
        let is_journal = below.extension().is_some_and(|end| end == "jnl");
        let is_table = below.starts_with("keyspaces") && !below.starts_with("keyspaces/0");
        let is_table = is_table && path.parent().is_some_and(trial::is_immutable);
        if is_table || (is_journal && !has_zeros_only(&path)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has_zeros_only(path: &Path) -> io::Result<bool> {
    let bytes = std::fs::read(path)?;
    Ok(bytes.iter().all(|byte| *byte == 0))
}

fn whole(
    directory: &Path,
    engine: &Path,
    mark: u64,
    manifest: Option<&Manifest>,
) -> Result<Found, OpenError> {
    let io = |error| OpenError::io("cannot look through the store", directory, error);
    marked(&engine.join("version"))?;
    if !has_journal(engine).map_err(io)? {
        return Err(missing(&engine.join(JOURNALS)));
    }
    let known = files(engine, manifest)?;
    let tried = trial::open(directory, engine).map_err(io)?;
    let torn = complete(directory, engine, mark, tried, manifest.is_some())?;
    Ok(Found::Store(known, torn))
}

/// By its mark the engine recognises a database and its format.
fn marked(path: &Path) -> Result<(), OpenError> {
    let bytes = version::read(path).map_err(unread)?;
    if bytes == ENGINE_VERSION { Ok(()) } else { Err(damaged(path)) }
}

/// There is always one. Without any the engine would count its writes from the beginning, and take
/// old ones for newer than new ones.
fn has_journal(engine: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(engine)? {
        if entry?.path().extension().is_some_and(|end| end == "jnl") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Each keyspace with its files.
fn files(engine: &Path, manifest: Option<&Manifest>) -> Result<Manifest, OpenError> {
    let io = |error| OpenError::io("cannot look through the store", engine, error);
    let mut found = manifest::keyspaces(engine).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => missing(&engine.join("keyspaces")),
        _ => io(error),
    })?;
    if let Some(manifest) = manifest {
        for number in manifest.keyspaces.keys() {
            if !found.iter().any(|(other, _)| other == number) {
                return Err(missing(&engine.join("keyspaces").join(number.to_string())));
            }
        }
        // The engine removes keyspaces that it began to create and that were never used.
        found.retain(|(number, _)| manifest.keyspaces.contains_key(number));
    }
    let mut known = Manifest::default();
    for (number, folder) in found {
        let version = Version::of(&folder).map_err(unread)?;
        let floor = manifest.and_then(|manifest| manifest.keyspaces.get(&number));
        if floor.is_some_and(|floor| version.number < *floor) {
            return Err(damaged(&folder.join(version::CURRENT)));
        }
        known.keyspaces.insert(number, version.number);
        for (path, sum) in version.files {
            let name = path.strip_prefix(engine).unwrap_or(&path).to_owned();
            let before = manifest.and_then(|manifest| manifest.files.get(&name));
            let seen = compare(&path, sum, before.filter(|before| before.sum == sum))?;
            known.files.insert(name, seen);
        }
    }
    Ok(known)
}

/// The tables and blob files of a keyspace, each with the engine's checksum of it.
pub(crate) fn summed(keyspace: &Path) -> Result<Vec<(PathBuf, u128)>, OpenError> {
    Version::of(keyspace).map(|version| version.files).map_err(unread)
}

/// Compares a table or blob file with what is known of it, or else with the engine's checksum.
fn compare(path: &Path, sum: u128, known: Option<&Known>) -> Result<Known, OpenError> {
    let io = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => missing(path),
        _ => OpenError::io("cannot read", path, error),
    };
    let seen = Known::of(path, sum).map_err(io)?;
    let is_good = match known {
        Some(known) => *known == seen,
        None => manifest::whole_sum(path).map_err(io)? == sum,
    };
    if is_good { Ok(seen) } else { Err(damaged(path)) }
}

/// Whether the engine and the write-ahead log together have all that was acknowledged. Returns what
/// must be cut off for that.
pub(crate) fn complete(
    directory: &Path,
    engine: &Path,
    mark: u64,
    tried: Result<Tried, String>,
    has_marks: bool,
) -> Result<Option<TornEnd>, OpenError> {
    let Tried { log, marks, torn } = tried.map_err(|error| {
        let text = format!(
            "the storage engine cannot open {}: {error}. Nothing was changed. {RESTORE}",
            engine.display()
        );
        OpenError::Damaged(StoreError::not_applied(StoreErrorKind::Damaged, text))
    })?;
    let is_behind = |mark: &Option<u64>| match mark {
        Some(mark) => *mark < log.number,
        None => has_marks && log.number > 0,
    };
    if marks.iter().any(is_behind) {
        return Err(damaged(&engine.join(JOURNALS)));
    }
    let last = wal::last(directory, log.row.logged)
        .map_err(|error| OpenError::io("cannot read the log", directory, error))?
        .map_err(|gap| OpenError::Damaged(journal::missing(gap.from, gap.to)))?;
    if last < mark {
        return Err(OpenError::Damaged(journal::missing(last + 1, mark)));
    }
    Ok(torn)
}

/// What to do.
const RESTORE: &str = "Restore the file from where it went, if it was moved or its owner changed; \
                       else restore the whole directory from one backup";

fn missing(path: &Path) -> OpenError {
    incomplete(path, "is missing, and the store is not complete without it")
}

fn damaged(path: &Path) -> OpenError {
    incomplete(path, "is damaged, or belongs to another time or place")
}

fn incomplete(path: &Path, what: &str) -> OpenError {
    let text = format!("{} {what}. Nothing was changed. {RESTORE}", path.display());
    OpenError::Damaged(StoreError::not_applied(StoreErrorKind::Damaged, text))
}

fn unread(why: ReadError) -> OpenError {
    match why {
        ReadError::Missing(path) => missing(&path),
        ReadError::Damaged(path) => damaged(&path),
        ReadError::Io(path, error) => OpenError::io("cannot read", &path, error),
    }
}

/// Removes what openings that were cut short have left: beside the store, or in its place.
pub(crate) fn tidy(directory: &Path, left: &[&Path]) -> io::Result<()> {
    let left = left.iter().map(std::fs::remove_dir_all);
    for removed in left.chain([trial::remove(directory)]) {
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    use justonce_core::RecordId;

    use crate::check::ManifestWriter;
    use crate::disk::{Disk, With};
    use crate::files::Modes;
    use crate::journal::BatchRow;
    use crate::open::EmbeddedStore;
    use crate::rows::RowName;

    /// So much of the log that the engine makes a table of it; the callers' rows stay in its
    /// journal.
    const BATCHES: u64 = 40;
    const IDS_A_BATCH: usize = 20_000;

    fn has_tables(engine: &Path) -> usize {
        let folders = manifest::keyspaces(engine).unwrap();
        let tables = folders.iter().map(|(_, folder)| folder.join("tables"));
        tables.filter(|tables| std::fs::read_dir(tables).unwrap().count() > 0).count()
    }

    #[expect(clippy::disallowed_methods, reason = "gives up when the engine does not come")]
    fn fill(engine: &Path) {
        let disk = Disk::open(engine, 1 << 20).unwrap();
        let before = has_tables(engine);
        for number in 1..=BATCHES {
            let unsettled = vec![RecordId::from_bytes([7; 32]); IDS_A_BATCH];
            let row = BatchRow { unsettled, logged: number, ..BatchRow::default() };
            let name = RowName::new("rooms", number.to_be_bytes()).unwrap();
            let rows = BTreeMap::from([(name, Some(b"taken".to_vec()))]);
            disk.write(number, &row, With { swept: vec![], expiring: vec![], rows }).unwrap();
        }
        let start = Instant::now();
        while has_tables(engine) == before {
            assert!(start.elapsed() < Duration::from_secs(60), "the log was not flushed");
            std::thread::yield_now();
        }
    }

    /// As the release before this one left it when it was killed while it made its first store.
    #[test]
    fn a_store_whose_making_was_cut_short_is_made_anew() {
        for cut in ["version", "keyspaces/2/current", "keyspaces/4", "keyspaces", "lock", ""] {
            let directory = tempfile::tempdir().unwrap();
            let (directory, engine) = (directory.path(), directory.path().join("records"));
            Disk::create(&engine, &directory.join("records.new")).unwrap();
            let removed = engine.join(cut);
            if removed.is_dir() {
                std::fs::remove_dir_all(&removed).unwrap();
                std::fs::create_dir_all(&engine).unwrap();
            } else {
                std::fs::remove_file(removed).unwrap();
            }
            drop(EmbeddedStore::open(directory).unwrap_or_else(|error| panic!("{cut}: {error}")));
            // From here on it was used.
            std::fs::remove_file(engine.join("keyspaces/2/current")).unwrap();
            assert!(EmbeddedStore::open(directory).is_err());
        }
    }

    #[test]
    fn a_lost_journal_is_noticed_also_when_the_log_no_longer_needs_it() {
        let directory = tempfile::tempdir().unwrap();
        let (directory, engine) = (directory.path(), directory.path().join("records"));
        Disk::create(&engine, &directory.join("records.new")).unwrap();
        fill(&engine);
        let modes = Modes::of(directory).unwrap();
        ManifestWriter::start(directory, &engine, Manifest::default(), modes).unwrap();
        assert!(matches!(inspect(directory, &engine, BATCHES), Ok(Found::Store(..))));
        let refused = || inspect(directory, &engine, 0).unwrap_err().to_string();
        std::fs::write(engine.join("0.jnl"), "").unwrap();
        assert!(refused().contains("*.jnl is damaged"), "{}", refused());
        std::fs::remove_file(engine.join("0.jnl")).unwrap();
        assert!(refused().contains("*.jnl is missing"), "{}", refused());
    }
}
