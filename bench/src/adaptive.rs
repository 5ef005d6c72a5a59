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
use crate::load::{Candidate, candidate, in_turn, runtime};
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

pub(crate) fn measure(report: &mut Report, slices: u64, time: Duration) -> Result<()> {
    let runtime = runtime()?;
    for (slow, what, least) in [
        (true, "adaptive commit delay to none, syncs of 4 ms", 1.2),
        (false, "adaptive commit delay to none, this disk", 0.95),
    ] {
        let directory = tempfile::tempdir()?;
        let candidates = [
            writes(&directory.path().join("with"), slow, CommitDelay::adaptive())?,
            writes(&directory.path().join("without"), slow, CommitDelay::none())?,
        ];
        let rates = runtime.block_on(in_turn(&candidates, slices, time))?;
        let [with, without] = <[Vec<f64>; 2]>::try_from(rates)
            .map_err(|_| anyhow!("two candidates have two rates"))?
            .map(median);
        let ratio = with / without;
        report.add(what, format!("{ratio:.2} ×"), &format!("≥ {least} ×"), ratio >= least);
    }
    Ok(())
}

fn writes(path: &Path, slow: bool, delay: CommitDelay) -> Result<Candidate> {
    let sink = FileSink { file: File::create(path)?, slow };
    let commits = Arc::new(GroupCommit::start(sink, delay)?);
    Ok(candidate(CALLERS, move |_, _| {
        let commits = Arc::clone(&commits);
        async move {
            let ticket = commits.enqueue(vec![b'x'; 600]).map_err(|_| closed())?;
            ticket.durable().await.map_err(|why| anyhow!("{why}"))
        }
    }))
}
