//! The store's own list of the storage engine's files.
//!
//! It is written after opening, from time to time, and when the store is closed; files that came
//! since are read whole by the next opening. So it need not be exact, and without it everything is
//! read whole.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::version::Version;
use crate::files::{Modes, create_private, sync_directory};

const FILE: &str = "manifest";
const NEW: &str = "manifest.new";
/// The engine's folder of its keyspaces.
const KEYSPACES: &str = "keyspaces";
const FIRST_LINE: &str = "justonce manifest 1";
/// So many of a file's last bytes are compared: they hold what a table says about itself, its
/// number and its time among it. Damage before them is noticed when a record is read, and costs
/// that record, not the whole store.
const TAIL_BYTES: u64 = 2 * 1024;
/// After so many batches of the storage engine the list is written anew: it bounds what an opening
/// after a crash reads whole.
const REFRESH_BATCHES: u32 = 16;
/// How often a list is begun again because the engine changed its files meanwhile.
const TRIES: u32 = 3;

/// What is known of the engine's files; their names begin at its folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Each keyspace with the number of a version that it had.
    pub(super) keyspaces: BTreeMap<u64, u64>,
    pub(super) files: BTreeMap<PathBuf, Known>,
}

/// What is known of a file that does not change any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// The engine's checksum of the whole file.
    pub(super) sum: u128,
    pub(super) bytes: u64,
    /// The checksum of its last bytes.
    pub(super) tail: u128,
}

impl Known {
    /// Reads the length and the last bytes of a file.
    pub(super) fn of(path: &Path, sum: u128) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let bytes = file.metadata()?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(TAIL_BYTES)))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        Ok(Self { sum, bytes, tail: xxh3_128(&tail) })
    }
}

/// The checksum of a whole file, as the engine makes it.
pub(crate) fn whole_sum(path: &Path) -> io::Result<u128> {
    let mut file = File::open(path)?;
    let mut hasher = Xxh3::new();
    let mut buffer = vec![0; 1024 * 1024];
    loop {
        let count = file.read(&mut buffer)?;
        let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else {
            return Ok(hasher.digest128());
        };
        hasher.update(read);
    }
}

/// The keyspaces in the engine's folder, by their numbers.
pub(crate) fn keyspaces(engine: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(engine.join(KEYSPACES))? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|_| entry.path().is_dir()) {
            found.push((number, entry.path()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

impl Manifest {
    /// The list, if there is one that can be believed.
    pub(crate) fn read(directory: &Path) -> io::Result<Option<Self>> {
        match std::fs::read(directory.join(FILE)) {
            Ok(bytes) => Ok(std::str::from_utf8(&bytes).ok().and_then(Self::parse)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The list of the engine's files, of which nothing is known.
    pub(crate) fn of(engine: &Path) -> io::Result<Self> {
        Self::now(engine, &Self::default())
    }

    /// The engine's checksum of a whole file, by its name below the engine's folder.
    pub(crate) fn sum_of(&self, name: &Path) -> Option<u128> {
        self.files.get(name).map(|known| known.sum)
    }

    /// Writes the list; a crash leaves the one before or this one.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        let new = directory.join(NEW);
        let mut file = create_private(&new)?;
        file.write_all(self.to_text().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, directory.join(FILE))?;
        sync_directory(directory)
    }

    fn to_text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        // Writing to a string cannot fail.
        for (number, version) in &self.keyspaces {
            let _ = writeln!(text, "keyspace {number} {version}");
        }
        for (path, Known { sum, bytes, tail }) in &self.files {
            let _ = writeln!(text, "file {} {bytes} {tail:032x} {sum:032x}", path.display());
        }
        let sum = xxh3_128(text.as_bytes());
        let _ = writeln!(text, "sum {sum:032x}");
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let (body, sum) = text.strip_suffix('\n')?.rsplit_once("sum ")?;
        if hex(sum)? != xxh3_128(body.as_bytes()) {
            return None;
        }
        let mut lines = body.lines();
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let mut manifest = Self::default();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["keyspace", number, version] => {
                    manifest.keyspaces.insert(number.parse().ok()?, version.parse().ok()?);
                }
                ["file", path, bytes, tail, sum] => {
                    let known =
                        Known { sum: hex(sum)?, bytes: bytes.parse().ok()?, tail: hex(tail)? };
                    manifest.files.insert(PathBuf::from(path), known);
                }
                _ => return None,
            }
        }
        Some(manifest)
    }

    /// The list as the files are now. Known files are not read again.
    fn now(engine: &Path, before: &Self) -> io::Result<Self> {
        let mut manifest = Self::default();
        // A power cut must not take away what is written down here: the engine does not sync the
        // names of keyspaces.
        sync_directory(&engine.join(KEYSPACES))?;
        for (number, folder) in keyspaces(engine)? {
            let version = (0..TRIES).find_map(|_| Version::of(&folder).ok());
            let version = version.ok_or_else(|| io::Error::other("the engine's files change"))?;
            // What was read may be so new that the engine has not synced it yet.
            sync_directory(&folder)?;
            manifest.keyspaces.insert(number, version.number);
            for (path, sum) in version.files {
                let name = path.strip_prefix(engine).unwrap_or(&path).to_owned();
                let known = before.files.get(&name).filter(|known| known.sum == sum).copied();
                let known = known.map_or_else(|| Known::of(&path, sum), Ok);
                match known {
                    Ok(known) => drop(manifest.files.insert(name, known)),
                    // The engine has replaced it meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(manifest)
    }
}

fn hex(text: &str) -> Option<u128> {
    u128::from_str_radix(text, 16).ok()
}

/// Keeps the list up to date while the store is open.
#[derive(Debug)]
pub(crate) struct ManifestWriter {
    directory: PathBuf,
    engine: PathBuf,
    manifest: Manifest,
    modes: Modes,
    batches: u32,
}

impl ManifestWriter {
    /// Writes the list of a store that has just been opened.
    pub(crate) fn start(
        directory: &Path,
        engine: &Path,
        before: Manifest,
        modes: Modes,
    ) -> io::Result<Self> {
        let mut manifest_writer = Self {
            directory: directory.to_owned(),
            engine: engine.to_owned(),
            // Checked files stay known; the list itself is written in any case.
            manifest: Manifest { keyspaces: BTreeMap::new(), ..before },
            modes,
            batches: 0,
        };
        manifest_writer.refresh()?;
        Ok(manifest_writer)
    }

    /// The engine has taken a batch.
    pub(crate) fn batch_applied(&mut self) {
        self.batches += 1;
        if self.batches >= REFRESH_BATCHES {
            self.refresh_if_possible();
        }
    }

    /// Writes the list anew. One that cannot be written stays as it was: then the next opening
    /// reads more.
    pub(crate) fn refresh_if_possible(&mut self) {
        let _ = self.refresh();
        self.batches = 0;
    }

    fn refresh(&mut self) -> io::Result<()> {
        self.modes.restrict()?;
        let manifest = Manifest::now(&self.engine, &self.manifest)?;
        if manifest != self.manifest {
            manifest.write(&self.directory)?;
            self.manifest = manifest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_back_and_a_damaged_one_is_not_believed() {
        let mut manifest = Manifest::default();
        manifest.keyspaces.extend([(0, 6), (1, 4)]);
        let known = Known { sum: 7, bytes: 5, tail: u128::MAX };
        manifest.files.insert("keyspaces/1/tables/2".into(), known);
        let text = manifest.to_text();
        assert_eq!(Manifest::parse(&text), Some(manifest));
        for cut in 0..text.len() {
            assert_eq!(Manifest::parse(&text[..cut]), None, "cut at {cut}");
            let mut damaged = text.clone().into_bytes();
            damaged[cut] ^= 1;
            let damaged = String::from_utf8(damaged).unwrap();
            assert_eq!(Manifest::parse(&damaged), None, "damaged at {cut}");
        }
    }
}
