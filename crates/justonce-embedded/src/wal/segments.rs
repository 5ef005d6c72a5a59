//! The files of the log.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::apply_queue::ApplyQueue;
use super::batch::{Heading, WalBatch, decode_run, encode};
use crate::files::{create_folder, private, sync_directory};
use crate::write::Write;

/// The folder of the log inside the store's directory.
const FOLDER: &str = "wal";
const SUFFIX: &str = ".wal";
/// A file is left for the next one when a batch would make it larger than this.
const SEGMENT_BYTES: u64 = 8 * 1024 * 1024;
/// So many files at most: with all of them full, callers wait for the storage engine.
const MAX_SEGMENTS: usize = 8;
/// How much of a new file is written at once.
const FILL_BYTES: usize = 1024 * 1024;
/// A buffer that one large batch has grown beyond this is given back.
const KEPT_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// The log, open for writing.
#[derive(Debug)]
pub(crate) struct Wal {
    folder: PathBuf,
    segments: Vec<Segment>,
    /// The one that is written, by its place in the list.
    current: usize,
    buffer: Vec<u8>,
    segment_bytes: u64,
    /// The number of the next new file.
    next_number: u64,
    /// The next file, on its way.
    spare: Option<JoinHandle<io::Result<File>>>,
    apply_queue: Arc<ApplyQueue>,
}

#[derive(Debug)]
struct Segment {
    file: File,
    /// Where the next batch goes.
    end: u64,
    /// The last batch in it.
    last: u64,
}

/// Batches are missing from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Reads what the log holds behind a batch: in the order of the numbers, none missing.
///
/// # Errors
///
/// If the files cannot be read; inside, if batches are missing.
pub(crate) fn read(directory: &Path, after: u64) -> io::Result<Result<Vec<WalBatch>, Gap>> {
    let mut batches: Vec<WalBatch> = Vec::new();
    let folder = directory.join(FOLDER);
    for number in files(&folder)? {
        let mut bytes = Vec::new();
        File::open(path(&folder, number))?.read_to_end(&mut bytes)?;
        batches.extend(decode_run(&bytes).into_iter().filter(|batch| batch.number > after));
    }
    batches.sort_by_key(|batch| batch.number);
    // A log that was opened again may hold a batch twice, in an old pass and in a new one.
    batches.dedup_by_key(|batch| batch.number);
    let numbers = batches.iter().map(|batch| batch.number);
    let gap = (after + 1..).zip(numbers).find(|(expected, number)| expected != number);
    Ok(match gap {
        Some((expected, number)) => Err(Gap { from: expected, to: number - 1 }),
        None => Ok(batches),
    })
}

/// The last batch that the log or, at `after`, the storage engine has; none is missing before it.
///
/// # Errors
///
/// If the files cannot be read; inside, if batches are missing.
pub(crate) fn last(directory: &Path, after: u64) -> io::Result<Result<u64, Gap>> {
    let batches = read(directory, after)?;
    Ok(batches.map(|batches| batches.last().map_or(after, |batch| batch.number)))
}

/// How much disk the log takes.
pub(crate) fn bytes(directory: &Path) -> io::Result<u64> {
    let folder = directory.join(FOLDER);
    files(&folder)?.into_iter().map(|number| Ok(path(&folder, number).metadata()?.len())).sum()
}

/// The numbers of the log's files, in order.
fn files(folder: &Path) -> io::Result<Vec<u64>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}{SUFFIX}"))
}

impl Wal {
    /// Opens the log for writing. All that it holds must be durable in the storage engine.
    pub(crate) fn open(directory: &Path, apply_queue: Arc<ApplyQueue>) -> io::Result<Self> {
        Self::with_segments_of(directory, apply_queue, SEGMENT_BYTES)
    }

    fn with_segments_of(
        directory: &Path,
        apply_queue: Arc<ApplyQueue>,
        segment_bytes: u64,
    ) -> io::Result<Self> {
        let folder = directory.join(FOLDER);
        create_folder(&folder)?;
        sync_directory(directory)?;
        let mut segments = Vec::new();
        let mut next_number = 0;
        for number in files(&folder)? {
            let file = OpenOptions::new().write(true).open(path(&folder, number))?;
            give_back(&file, file.metadata()?.len(), segment_bytes)?;
            segments.push(Segment { file, end: 0, last: 0 });
            next_number = number + 1;
        }
        let buffer = Vec::new();
        if segments.is_empty() {
            // The first one grows with what is written: many stores never need more.
            let file = create(&folder, next_number)?;
            segments.push(Segment { file, end: 0, last: 0 });
            next_number += 1;
        }
        Ok(Self {
            folder,
            segments,
            current: 0,
            buffer,
            segment_bytes,
            next_number,
            spare: None,
            apply_queue,
        })
    }

    /// Writes a batch and syncs it.
    ///
    /// # Errors
    ///
    /// A message for the operator. The batch may be on disk then.
    pub(crate) fn append(&mut self, heading: Heading, writes: &[Write]) -> Result<(), String> {
        encode(heading, writes, &mut self.buffer);
        let length = self.buffer.len() as u64;
        self.make_room(length)?;
        let current = self.segments.get(self.current);
        if current.is_none_or(|c| c.end > 0 && c.end + length > self.segment_bytes) {
            self.next_segment()?;
        }
        let Some(segment) = self.segments.get_mut(self.current) else {
            return Err("the log has no file".into());
        };
        segment
            .file
            .write_all_at(&self.buffer, segment.end)
            .and_then(|()| segment.file.sync_data())
            .map_err(|error| format!("cannot write the log: {error}"))?;
        segment.end += length;
        segment.last = heading.number;
        let half_full = segment.end > self.segment_bytes / 2;
        if self.buffer.capacity() > KEPT_BUFFER_BYTES {
            self.buffer = Vec::new();
        }
        if half_full && self.spare.is_none() && self.free().is_none() {
            self.prepare_spare();
        }
        Ok(())
    }

    /// Waits for the storage engine while it lacks more than the files have room for: what it lacks
    /// is in memory too. A batch that is larger than all of them waits for all before it.
    fn make_room(&self, length: u64) -> Result<(), String> {
        let room = self.segment_bytes.saturating_mul(MAX_SEGMENTS as u64);
        loop {
            let durable = self.apply_queue.durable();
            let lacking = self.segments.iter().filter(|segment| segment.last > durable);
            let (oldest, last, bytes) = lacking.fold((u64::MAX, 0, length), |found, segment| {
                let (oldest, last, bytes) = found;
                (oldest.min(segment.last), last.max(segment.last), bytes + segment.end)
            });
            if last == 0 || bytes <= room {
                return Ok(());
            }
            self.apply_queue.want(last);
            self.apply_queue.wait_for(oldest).map_err(|error| error.to_string())?;
        }
    }

    /// Continues in a file whose contents are no longer needed.
    fn next_segment(&mut self) -> Result<(), String> {
        let last = self.segments.get(self.current).map_or(0, |segment| segment.last);
        self.apply_queue.want(last);
        if self.free().is_none() {
            self.prepare_spare();
            // Without another file, the first that the engine no longer needs will do.
            self.add_spare();
        }
        let oldest = self.segments.iter().map(|segment| segment.last).min().unwrap_or(0);
        self.apply_queue.wait_for(oldest).map_err(|error| error.to_string())?;
        let free = self.free().ok_or("no file of the log became free")?;
        self.current = free;
        if let Some(segment) = self.segments.get_mut(free) {
            give_back(&segment.file, segment.end, self.segment_bytes)
                .map_err(|error| format!("cannot shorten the log: {error}"))?;
            segment.end = 0;
        }
        Ok(())
    }

    /// The place of a file that may be written from its start.
    fn free(&self) -> Option<usize> {
        let durable = self.apply_queue.durable();
        self.segments.iter().position(|segment| segment.last <= durable)
    }

    /// Creates the next file in the background, unless there are enough.
    fn prepare_spare(&mut self) {
        if self.spare.is_some() || self.segments.len() >= MAX_SEGMENTS {
            return;
        }
        let (folder, number, bytes) = (self.folder.clone(), self.next_number, self.segment_bytes);
        self.next_number += 1;
        let thread = std::thread::Builder::new().name("justonce-spare".into());
        // Without a thread it is tried again when the file is needed.
        self.spare = thread.spawn(move || create_filled(&folder, number, bytes)).ok();
    }

    /// Takes the file that was made, if one was and could be.
    fn add_spare(&mut self) {
        if let Some(spare) = self.spare.take()
            && let Ok(Ok(file)) = spare.join()
        {
            self.segments.push(Segment { file, end: 0, last: 0 });
        }
    }
}

impl Drop for Wal {
    /// After this no thread writes to the files.
    fn drop(&mut self) {
        self.add_spare();
    }
}

/// Shortens a file that a large batch has made longer than the others. Nothing in it is needed.
fn give_back(file: &File, bytes: u64, wanted: u64) -> io::Result<()> {
    if bytes > wanted { file.set_len(wanted) } else { Ok(()) }
}

/// An empty file.
fn create(folder: &Path, number: u64) -> io::Result<File> {
    let path = path(folder, number);
    let file = private().write(true).create_new(true).open(path)?;
    file.sync_all()?;
    sync_directory(folder)?;
    Ok(file)
}

/// A file whose blocks are all written once, so that syncs of it are cheap from the start.
fn create_filled(folder: &Path, number: u64, bytes: u64) -> io::Result<File> {
    let file = create(folder, number)?;
    let zeros = vec![0; FILL_BYTES];
    let mut at = 0;
    while at < bytes {
        let rest = usize::try_from(bytes - at).unwrap_or(FILL_BYTES);
        let part = zeros.get(..rest).unwrap_or(&zeros);
        file.write_all_at(part, at)?;
        at += part.len() as u64;
    }
    file.sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use justonce_core::Timestamp;

    fn heading(number: u64) -> Heading {
        Heading { number, now: Timestamp::from_millis(number), fences_reserved: number }
    }

    fn found(directory: &Path, after: u64) -> Result<Vec<u64>, Gap> {
        let batches = read(directory, after).unwrap()?;
        Ok(batches.iter().map(|batch| batch.number).collect())
    }

    /// A log with files of three batches each.
    fn small(directory: &Path, apply_queue: &Arc<ApplyQueue>) -> Wal {
        let mut buffer = Vec::new();
        encode(heading(1), &[Write::empty()], &mut buffer);
        let bytes = 3 * buffer.len() as u64;
        Wal::with_segments_of(directory, Arc::clone(apply_queue), bytes).unwrap()
    }

    fn append(wal: &mut Wal, numbers: std::ops::RangeInclusive<u64>) {
        for number in numbers {
            wal.append(heading(number), &[Write::empty()]).unwrap();
        }
    }

    #[test]
    fn what_the_engine_has_not_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(found(directory.path(), 0), Ok(vec![]));
        let apply_queue = Arc::new(ApplyQueue::default());
        append(&mut small(directory.path(), &apply_queue), 1..=10);
        assert_eq!(found(directory.path(), 0), Ok((1..=10).collect()));
        assert_eq!(found(directory.path(), 7), Ok((8..=10).collect()));
        assert_eq!(found(directory.path(), 12), Ok(vec![]));
    }

    #[test]
    fn files_are_written_again_once_the_engine_has_what_they_hold() {
        let directory = tempfile::tempdir().unwrap();
        let apply_queue = Arc::new(ApplyQueue::default());
        let mut wal = small(directory.path(), &apply_queue);
        for last in 1..=100 {
            append(&mut wal, last..=last);
            apply_queue.is_durable(last - 1);
        }
        assert_eq!(wal.segments.len(), 2);
        assert_eq!(found(directory.path(), 99), Ok(vec![100]));
        // Of what is long gone from the log, it says so.
        assert!(matches!(found(directory.path(), 10), Err(Gap { from: 11, .. })));
    }

    #[test]
    fn a_lost_file_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        append(&mut small(directory.path(), &Arc::default()), 1..=9);
        std::fs::remove_file(directory.path().join(FOLDER).join("1.wal")).unwrap();
        assert_eq!(found(directory.path(), 0), Err(Gap { from: 4, to: 6 }));
    }

    #[test]
    fn with_every_file_full_it_waits_for_the_engine_or_hears_that_it_failed() {
        let directory = tempfile::tempdir().unwrap();
        let apply_queue = Arc::new(ApplyQueue::default());
        let mut wal = small(directory.path(), &apply_queue);
        let room = 3 * MAX_SEGMENTS as u64;
        append(&mut wal, 1..=room);
        apply_queue.fail("the engine is broken");
        let error = wal.append(heading(room + 1), &[Write::empty()]).unwrap_err();
        assert_eq!(error, "the engine is broken");
        assert_eq!(found(directory.path(), 0), Ok((1..=room).collect()));
    }

    #[test]
    fn large_batches_wait_for_the_engine_and_their_room_is_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let apply_queue = Arc::new(ApplyQueue::default());
        let mut wal = small(directory.path(), &apply_queue);
        let room = wal.segment_bytes * MAX_SEGMENTS as u64;
        let large: Vec<Write> = (0..100).map(|_| Write::empty()).collect();
        for number in 1..=5 {
            wal.append(heading(number), &large).unwrap();
            assert!(bytes(directory.path()).unwrap() > room, "it is larger than all files");
            apply_queue.is_durable(number);
        }
        for number in 6..=40 {
            append(&mut wal, number..=number);
            apply_queue.is_durable(number);
        }
        let left = bytes(directory.path()).unwrap();
        assert!(left <= room, "{left} bytes, of {room}");
        wal.append(heading(41), &large).unwrap();
        apply_queue.is_durable(41);
        drop(wal);
        let mut wal = small(directory.path(), &apply_queue);
        let left = bytes(directory.path()).unwrap();
        assert!(left <= room, "{left} bytes after it was opened, of {room}");
        // What the engine lacks is in memory too.
        wal.append(heading(42), &large).unwrap();
        apply_queue.fail("the engine is broken");
        let error = wal.append(heading(43), &large).unwrap_err();
        assert_eq!(error, "the engine is broken");
        assert_eq!(found(directory.path(), 41), Ok(vec![42]));
    }

    #[test]
    fn a_log_that_is_opened_again_goes_on_with_the_same_files() {
        let directory = tempfile::tempdir().unwrap();
        append(&mut small(directory.path(), &Arc::default()), 1..=5);
        let apply_queue = Arc::new(ApplyQueue::starting_at(5));
        append(&mut small(directory.path(), &apply_queue), 6..=9);
        assert_eq!(found(directory.path(), 5), Ok((6..=9).collect()));
    }
}
