//! The thread that writes the lines, and the queue before it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::counter;
use tokio::time::Instant;

use super::target::Target;
use crate::metrics::ACCESS_LOG_DROPPED;

/// How many lines wait at most.
const MAX_QUEUED_LINES: usize = 16 * 1024;
/// How many bytes of them: lines with long paths are rare.
const MAX_QUEUED_BYTES: usize = 16 * 1024 * 1024;
/// How many bytes are written at once.
const BATCH_BYTES: usize = 64 * 1024;
/// The shortest pause between two reports of lines that were left out.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Queues lines for the thread that writes them. Nothing here waits.
#[derive(Debug)]
pub(super) struct Writer {
    queue: SyncSender<Option<String>>,
    shared: Arc<Shared>,
    /// Ends with the thread.
    ended: Mutex<Option<Receiver<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    queued_bytes: AtomicUsize,
    reopen: AtomicBool,
    stop: AtomicBool,
    /// Lines that were left out and not reported yet.
    dropped: AtomicU64,
    reported: Mutex<Option<Instant>>,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If the system has none for us.
    pub(super) fn start(target: Target) -> std::io::Result<Self> {
        let (queue, lines) = sync_channel(MAX_QUEUED_LINES);
        let (end, ended) = sync_channel(0);
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            write_all(target, &lines, &of_thread);
            drop(end);
        })?;
        Ok(Self { queue, shared, ended: Mutex::new(Some(ended)) })
    }

    /// Queues a line, or leaves it out.
    pub(super) fn put(&self, line: String) {
        let bytes = line.len();
        let queued = self.shared.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_full = queued.saturating_add(bytes) > MAX_QUEUED_BYTES;
        if is_full || self.queue.try_send(Some(line)).is_err() {
            self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.leave_out(1, "the queue is full");
        }
    }

    /// Has the file opened again.
    pub(super) fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
        self.wake();
    }

    /// Writes what is queued and ends the thread; whether it came to its end in time.
    pub(super) fn finish(&self, limit: Duration) -> bool {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Nothing is ever sent: its end is the end of the thread.
        let timed_out = std::sync::mpsc::RecvTimeoutError::Timeout;
        let has_ended = ended.is_none_or(|ended| ended.recv_timeout(limit) != Err(timed_out));
        self.shared.report("the gateway stops");
        has_ended
    }

    /// Has the thread look up. If the queue is full, it is about to.
    fn wake(&self) {
        match self.queue.try_send(None) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

impl Shared {
    fn leave_out(&self, lines: u64, why: &str) {
        counter!(ACCESS_LOG_DROPPED.name).increment(lines);
        self.dropped.fetch_add(lines, Ordering::Relaxed);
        // Another thread may be reporting; waiting for it would hold up a request.
        let Ok(mut reported) = self.reported.try_lock() else { return };
        let now = Instant::now();
        if reported.is_none_or(|reported| now.duration_since(reported) >= REPORT_EVERY) {
            *reported = Some(now);
            self.report(why);
        }
    }

    fn report(&self, why: &str) {
        let lines = self.dropped.swap(0, Ordering::Relaxed);
        if lines > 0 {
            tracing::warn!(lines, why, "lines of the access log were left out");
        }
    }
}

fn write_all(mut target: Target, lines: &Receiver<Option<String>>, shared: &Shared) {
    let mut batch = String::with_capacity(BATCH_BYTES);
    while let Ok(first) = lines.recv() {
        let mut count = 0;
        let mut next = Some(first);
        while let Some(message) = next {
            if let Some(line) = message {
                shared.queued_bytes.fetch_sub(line.len(), Ordering::Relaxed);
                batch.push_str(&line);
                count += 1;
            }
            next = if batch.len() < BATCH_BYTES { lines.try_recv().ok() } else { None };
        }
        if shared.reopen.swap(false, Ordering::AcqRel)
            && let Err(error) = target.reopen()
        {
            tracing::error!(%error, "the access log cannot be opened again: the old file stays");
        }
        if !batch.is_empty()
            && let Err(error) = target.write(batch.as_bytes())
        {
            shared.leave_out(count, &format!("it cannot be written: {error}"));
        }
        batch.clear();
        if shared.stop.load(Ordering::Acquire) && shared.queued_bytes.load(Ordering::Acquire) == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::config::AccessLogTarget;

    const LIMIT: Duration = Duration::from_secs(30);

    fn file(directory: &tempfile::TempDir) -> (std::path::PathBuf, Writer) {
        let path = directory.path().join("access.log");
        let target = Target::open(&AccessLogTarget::File(path.clone())).unwrap();
        (path, Writer::start(target).unwrap())
    }

    #[test]
    fn everything_that_was_queued_is_written_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let (path, writer) = file(&directory);
        for number in 0..1000 {
            writer.put(format!("{number}\n"));
        }
        assert!(writer.finish(LIMIT));
        let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        // Appended to, by the next process too.
        let (path, writer) = file(&directory);
        writer.put("last\n".to_owned());
        assert!(writer.finish(LIMIT));
        assert_eq!(std::fs::read_to_string(path).unwrap(), expected + "last\n");
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let (path, writer) = file(&directory);
        let moved = path.with_extension("1");
        std::fs::rename(&path, &moved).unwrap();
        writer.reopen();
        writer.put("new\n".to_owned());
        assert!(writer.finish(LIMIT));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "");
    }

    #[test]
    fn a_reader_that_does_not_read_holds_nothing_up() {
        // Nobody reads until the end.
        let (mut pipe, end) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", end.as_raw_fd());
        let target = Target::open(&AccessLogTarget::File(path.into())).unwrap();
        let writer = Writer::start(target).unwrap();
        let line = format!("{}\n", "x".repeat(1023));
        for _ in 0..2 * MAX_QUEUED_LINES {
            writer.put(line.clone());
        }
        let queued = writer.shared.queued_bytes.load(Ordering::Relaxed);
        assert!(queued <= MAX_QUEUED_BYTES, "{queued}");
        assert!(!writer.finish(Duration::ZERO));
        let mut some = vec![0; 1024];
        pipe.read_exact(&mut some).unwrap();
        assert_eq!(some, line.as_bytes());
    }
}
