//! The adaptive commit delay, on a disk made slow and on the real one.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use justonce::CommitDelay;
use justonce::embedded::commit::{GroupCommit, Sink};

use crate::floor::closed;
use crate::load::{rate, runtime};
use crate::report::{Report, median};

const CALLERS: u64 = 32;
/// A sync on a slow disk.
const SLOW_SYNC: Duration = Duration::from_millis(4);

/// Writes to a file and syncs it; a slow one takes its time.
struct FileSink {
    file: File,
    slow: bool,
}

impl Sink<Vec<u8>> for FileSink {
    #[expect(clippy::disallowed_methods, reason = "the sleep is the slow disk")]
    fn commit(&mut self, batch: &mut Vec<Vec<u8>>) -> Result<(), String> {
        let bytes: Vec<u8> = batch.drain(..).flatten().collect();
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        if self.slow {
            std::thread::sleep(SLOW_SYNC);
        }
        written.map_err(|error| error.to_string())
    }
}

pub(crate) fn measure(report: &mut Report, rounds: usize, time: Duration) -> Result<()> {
    let runtime = runtime()?;
    for (slow, what, wanted, least) in [
        (true, "adaptive commit delay to none, syncs of 4 ms", "≥ 1.2 ×", 1.2),
        (false, "adaptive commit delay to none, this disk", "≥ 0.95 ×", 0.95),
    ] {
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let directory = tempfile::tempdir()?;
            let (a, b) = (directory.path().join("a"), directory.path().join("b"));
            let with = runtime.block_on(writes(&a, slow, CommitDelay::adaptive(), time))?;
            let without = runtime.block_on(writes(&b, slow, CommitDelay::none(), time))?;
            ratios.push(with / without);
        }
        let ratio = median(ratios);
        report.add(what, format!("{ratio:.2} ×"), wanted, ratio >= least);
    }
    Ok(())
}

async fn writes(path: &Path, slow: bool, delay: CommitDelay, time: Duration) -> Result<f64> {
    let sink = FileSink { file: File::create(path)?, slow };
    let commits = Arc::new(GroupCommit::start(sink, delay)?);
    let writer = Arc::clone(&commits);
    let result = rate(CALLERS, time, move |_, _| {
        let commits = Arc::clone(&writer);
        async move {
            let ticket = commits.enqueue(vec![b'x'; 600]).map_err(|_| closed())?;
            ticket.durable().await.map_err(|why| anyhow!("{why}"))
        }
    })
    .await;
    commits.close();
    result
}
