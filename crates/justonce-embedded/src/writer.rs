//! Makes decisions durable, a batch at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use justonce_core::store::Stats;
use justonce_core::{RecordId, StateName};

use crate::commit::Sink;
use crate::journal::{BatchRow, NAME_ALL_EVERY};
use crate::state::{Home, State, is_settled};
use crate::step::Write;
use crate::watermark::Watermark;

/// Retentions are swept by the second: one row of the index holds all of a batch that end in it.
const EXPIRY_GRAIN_MS: u64 = 1000;

/// The sink behind the group commit.
pub(crate) struct Writer {
    pub(crate) state: Arc<State>,
    pub(crate) watermark: Watermark,
    pub(crate) number: u64,
    pub(crate) done: Stats,
    /// Whether the next row names all that is unsettled, as the first after opening does.
    pub(crate) names_all_next: bool,
}

impl Writer {
    /// Writes one batch and syncs it.
    pub(crate) fn write(&mut self, batch: &mut [Write]) -> Result<(), String> {
        let number = self.number + 1;
        let mut done = self.done;
        let mut expiring: Vec<(u64, Vec<u8>)> = Vec::new();
        let names_all = self.names_all_next || number.is_multiple_of(NAME_ALL_EVERY);
        let mut unsettled = if names_all { self.all_unsettled() } else { Vec::new() };
        for write in batch.iter() {
            if write.adds == Home::Live {
                unsettled.push(write.id);
            }
            if let Home::Done(state, bytes) = write.replaces {
                done.sub(state, u64::from(bytes));
            }
            if let Home::Done(state, bytes) = write.adds {
                done.add(state, u64::from(bytes));
            }
            if let Some(moment) = write.expires_at {
                let end = moment.as_millis().div_ceil(EXPIRY_GRAIN_MS);
                let end = end.saturating_mul(EXPIRY_GRAIN_MS);
                match expiring.iter_mut().find(|(other, _)| *other == end) {
                    Some((_, ids)) => ids.extend_from_slice(write.id.as_bytes()),
                    None => expiring.push((end, write.id.as_bytes().to_vec())),
                }
            }
        }
        let reserved = self.state.fences.to_reserve();
        let now = self.state.now();
        let row = BatchRow { now, fences_reserved: reserved, done, unsettled, names_all };
        let ops = batch.iter_mut().filter_map(|write| write.op.take());
        self.state
            .disk
            .write(number, &row, ops, expiring.into_iter())
            .map_err(|error| error.to_string())?;
        self.watermark
            .set(number)
            .map_err(|error| format!("cannot write the watermark: {error}"))?;
        self.number = number;
        self.names_all_next = false;
        self.done = done;
        self.state.fences.reserved(reserved);
        Ok(())
    }
}

impl Writer {
    /// Whatever may be unsettled on disk: all that is in memory, also what is on its way to be
    /// settled. An opening store looks at each.
    fn all_unsettled(&self) -> Vec<RecordId> {
        let mut all = Vec::new();
        for shard in self.state.table.each() {
            all.extend(shard.live.keys().copied());
        }
        all
    }
}

impl Sink<Write> for Writer {
    fn commit(&mut self, batch: &mut Vec<Write>) -> Result<(), String> {
        self.write(batch).inspect_err(|error| {
            // Whatever else fails later, the first reason is the one to tell.
            let _ = self.state.stopped.set(Arc::from(error.as_str()));
        })
    }

    /// Lets go of what is settled and on disk now.
    fn committed(&mut self, batch: Vec<Write>) {
        for write in batch.iter().filter(|write| write.change != 0) {
            let mut shard = self.state.table.of(&write.id);
            let Some(live) = shard.live.get_mut(&write.id) else {
                continue;
            };
            if live.change != write.change {
                continue;
            }
            match &live.row {
                Some(row) if !is_settled(&row.stored.entry) => {
                    live.pending = None;
                    continue;
                }
                Some(row) => {
                    let (state, bytes) = (row.stored.entry.state_name(), u64::from(row.bytes));
                    if state != StateName::Tombstone {
                        self.state.hot.insert(write.id, Arc::clone(row));
                    }
                    shard.done.add(state, bytes);
                }
                None => {}
            }
            shard.live.remove(&write.id);
            shard.left += 1;
            self.state.live_count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
