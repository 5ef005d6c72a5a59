//! Makes decisions durable, a batch at a time: in the write-ahead log.

use std::sync::Arc;

use crate::commit::Sink;
use crate::state::State;
use crate::wal::{ApplyQueue, Heading, Wal, WalBatch};
use crate::watermark::Watermark;
use crate::write::Write;

/// The sink behind the group commit.
pub(crate) struct Writer {
    pub(crate) state: Arc<State>,
    pub(crate) wal: Wal,
    pub(crate) watermark: Watermark,
    pub(crate) apply_queue: Arc<ApplyQueue>,
    /// What the last batch said.
    pub(crate) last: Heading,
}

impl Writer {
    /// Writes one batch and syncs it.
    fn write(&mut self, batch: &[Write]) -> Result<(), String> {
        if let Some(why) = self.state.stopped.get() {
            return Err(why.to_string());
        }
        let heading = Heading {
            number: self.last.number + 1,
            now: self.state.now(),
            fences_reserved: self.state.fences.to_reserve(),
        };
        self.wal.append(heading, batch)?;
        self.watermark
            .set(heading.number)
            .map_err(|error| format!("cannot write the watermark: {error}"))?;
        self.last = heading;
        self.state.fences.reserved(heading.fences_reserved);
        Ok(())
    }
}

impl Sink<Write> for Writer {
    fn commit(&mut self, batch: &mut Vec<Write>) -> Result<(), String> {
        let written = self.write(batch);
        let counted = batch.iter().map(|write| write.queued_bytes).filter(|bytes| *bytes > 0);
        let (count, bytes) = counted.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes));
        self.state.bounded.queued.sub(count, bytes);
        written.inspect_err(|error| self.state.stop(error))
    }

    /// Passes the batch to the applier.
    fn committed(&mut self, writes: Vec<Write>) {
        let Heading { number, now, fences_reserved } = self.last;
        self.apply_queue.push(WalBatch { number, now, fences_reserved, writes });
    }

    fn panicked(&mut self, why: &str) {
        self.state.stop(why);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.apply_queue.close();
    }
}
