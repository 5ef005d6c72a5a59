//! The storage engine's files as they are at one moment.
//!
//! The applier pauses meanwhile; the engine's own threads do not. They move data from journals to
//! tables and merge tables, so the order counts: journals are copied before the tables are linked.
//! What a journal held when it was copied is either in the copy or in a table that is linked later;
//! in both places it counts once, by its number.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::archive::Source;
use super::list::{ENGINE, MANIFEST};
use crate::check::{self, Manifest};
use crate::files::{create_folder, frozen_folder, walk};

/// How often files are looked for anew because the engine has replaced them meanwhile.
const TRIES: u32 = 16;
/// So many zeros behind what a journal holds are kept. The engine makes its journals larger than
/// what is in them.
const JOURNAL_REST_BYTES: u64 = 4096;
/// How much of a journal is read at once.
const LOOKED_AT_BYTES: usize = 256 * 1024;

/// Tells the backups of this process apart.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Links to the engine's files, and copies of those that change. Removed when it is dropped.
#[derive(Debug)]
pub(super) struct Frozen(PathBuf);

impl Frozen {
    /// Freezes the engine's files, while nothing is written to it. Reads no table.
    pub(super) fn of(engine: &Path) -> io::Result<Self> {
        let folder = frozen_folder(engine);
        remove(&folder)?;
        create_folder(&folder)?;
        // A name of its own: a backup that was begun before the store was opened again takes no
        // file of this one with it, and none into itself.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = folder.join(format!("{}-{number}", std::process::id()));
        create_folder(&folder)?;
        let frozen = Self(folder);
        let to = frozen.0.join(ENGINE);
        create_folder(&to)?;
        journals(engine, &to)?;
        check::copy_file(&engine.join("version"), &to.join("version"))?;
        create_folder(&to.join("keyspaces"))?;
        for (number, folder) in check::keyspaces(engine)? {
            keyspace(&folder, &to.join("keyspaces").join(number.to_string()))?;
        }
        Ok(frozen)
    }

    /// The files, with the manifest that goes with them.
    pub(super) fn sources(&self) -> io::Result<Vec<Source>> {
        let engine = self.0.join(ENGINE);
        let manifest = Manifest::of(&engine)?;
        manifest.write(&self.0)?;
        let mut sources = vec![source(&self.0, self.0.join(MANIFEST), None)?];
        for path in walk(&engine, |_| false)? {
            if path.is_dir() {
                continue;
            }
            let wanted = path.strip_prefix(&engine).ok().and_then(|name| manifest.sum_of(name));
            sources.push(source(&self.0, path, wanted)?);
        }
        // The manifest is first: what comes after it alone is no new store.
        if let Some((_, rest)) = sources.split_first_mut() {
            rest.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        }
        Ok(sources)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // What stays is removed by the next backup, or by the next opening.
        let _ = remove(&self.0);
        // Unless another one is in it.
        let _ = self.0.parent().map(std::fs::remove_dir);
    }
}

fn remove(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn source(folder: &Path, path: PathBuf, wanted: Option<u128>) -> io::Result<Source> {
    let name = path.strip_prefix(folder).ok().and_then(Path::to_str);
    let name = name.ok_or_else(|| io::Error::other("a file's name is not a text"))?.to_owned();
    let is_journal = path.extension().is_some_and(|end| end == "jnl");
    let bytes = path.metadata()?.len();
    let bytes = if is_journal { used(&path, bytes)? } else { bytes };
    Ok(Source { name, path, bytes, wanted })
}

/// How much of a journal is used, and a little more. It is looked for from the end.
fn used(path: &Path, bytes: u64) -> io::Result<u64> {
    let file = File::open(path)?;
    let mut buffer = vec![0; LOOKED_AT_BYTES];
    let mut end = bytes;
    while end > 0 {
        let start = end.saturating_sub(LOOKED_AT_BYTES as u64);
        let length = usize::try_from(end - start).unwrap_or(LOOKED_AT_BYTES);
        let part = buffer.get_mut(..length).unwrap_or_default();
        file.read_exact_at(part, start)?;
        if let Some(last) = part.iter().rposition(|byte| *byte != 0) {
            end = start + last as u64 + 1;
            break;
        }
        end = start;
    }
    Ok(end.saturating_add(JOURNAL_REST_BYTES).min(bytes))
}

/// Copies the journals. One that goes meanwhile is in tables; they do not all go.
fn journals(engine: &Path, to: &Path) -> io::Result<()> {
    for _ in 0..TRIES {
        let mut copied = 0;
        for entry in std::fs::read_dir(engine)? {
            let path = entry?.path();
            let Some(name) =
                path.file_name().filter(|_| path.extension().is_some_and(|end| end == "jnl"))
            else {
                continue;
            };
            match check::copy_file(&path, &to.join(name)) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                done => {
                    done?;
                    copied += 1;
                }
            }
        }
        if copied > 0 {
            return Ok(());
        }
    }
    Err(io::Error::other("the storage engine has no journal"))
}

/// Copies what says which files a keyspace has, and links those.
fn keyspace(from: &Path, to: &Path) -> io::Result<()> {
    let mut last = io::Error::other("the engine's files change");
    for _ in 0..TRIES {
        remove(to)?;
        match try_keyspace(from, to) {
            // Replaced meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => last = error,
            done => return done,
        }
    }
    Err(last)
}

fn try_keyspace(from: &Path, to: &Path) -> io::Result<()> {
    create_folder(to)?;
    let changed = || io::Error::from(ErrorKind::NotFound);
    let (pointer, listed) = check::pointed_to(from).map_err(|_| changed())?;
    check::copy_file(&from.join(&pointer), &to.join(&pointer))?;
    check::copy_file(&from.join(check::CURRENT), &to.join(check::CURRENT))?;
    // The copies agree with each other, or the engine came in between.
    if check::pointed_to(to).map_err(|_| changed())?.0 != pointer {
        return Err(changed());
    }
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_dir()) {
            create_folder(&to.join(name))?;
        }
    }
    for path in listed {
        let name = path.strip_prefix(from).map_err(io::Error::other)?;
        let target = to.join(name);
        match std::fs::hard_link(&path, &target) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
            // Some file systems have no links.
            Err(_) => check::copy_file(&path, &target)?,
            Ok(()) => {}
        }
    }
    Ok(())
}
