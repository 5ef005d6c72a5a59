//! Brings a store that is opened to where it was: what only the write-ahead log has goes into the
//! storage engine, and what is unsettled into memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::Stored;
use justonce_core::{Clock, RecordId, StoreErrorKind, Timestamp};

use crate::applier::Applied;
use crate::bounds::{Bounds, unsettled_bytes};
use crate::clock_floor;
use crate::disk::Disk;
use crate::error::OpenError;
use crate::journal::{self, Recovered};
use crate::restored::{self, Losses};
use crate::state::{Fences, Live, Row, State, Time, is_settled};
use crate::unindexed::Candidates;
use crate::wal::{self, Gap};
use crate::write::DiskState;

/// Brings what only the write-ahead log has into the storage engine: the log is written anew from
/// here on.
pub(crate) fn catch_up(
    directory: &Path,
    disk: &Disk,
    mark: u64,
    name_all_every: u64,
) -> Result<Recovered, OpenError> {
    let mut log = journal::recover(disk.log()).map_err(OpenError::Damaged)?;
    let lost = |Gap { from, to }| OpenError::Damaged(journal::missing(from, to));
    let mut batches = wal::read(directory, log.row.logged)
        .map_err(|error| OpenError::io("cannot read the log", directory, error))?
        .map_err(lost)?;
    if !batches.is_empty() {
        let (number, done) = (log.number, log.row.done);
        let mut applied = Applied { number, done, names_all_next: false, name_all_every };
        applied
            // A row that names all must not forget what earlier rows named.
            .write(disk, &mut batches, || log.unsettled.iter().copied().collect())
            .map_err(|error| OpenError::engine(directory, error))?;
        log = journal::recover(disk.log()).map_err(OpenError::Damaged)?;
    }
    if log.row.logged < mark {
        return Err(lost(Gap { from: log.row.logged + 1, to: mark }));
    }
    Ok(log)
}

/// The store's time: not before the floor, or, after a reset, the clock's.
pub(crate) fn time(
    directory: &Path,
    disk: &Disk,
    clock: Box<dyn Clock>,
    floor: Timestamp,
    reset: bool,
) -> Result<Time, OpenError> {
    let now = clock.now();
    let ahead = floor.since(now);
    if reset && !ahead.is_zero() {
        // Before any step is taken at the earlier time.
        disk.set_clock_reset_at(now).map_err(|error| OpenError::engine(directory, error))?;
        let (ahead, losses) = (Duration::ZERO, Losses::default());
        return Ok(Time { clock, ahead, clock_reset_at: now, losses });
    }
    let clock_reset_at = disk.clock_reset_at().map_err(OpenError::Damaged)?;
    Ok(Time { clock, ahead, clock_reset_at, losses: Losses::default() })
}

/// What the store may have lost, unless an operator takes it for not executed.
pub(crate) fn losses(directory: &Path, disk: &Disk, accepted: bool) -> Result<Losses, OpenError> {
    let io = |error| OpenError::io("cannot look into the directory", directory, error);
    let losses = disk.losses().map_err(OpenError::Damaged)?;
    if !(accepted || restored::is_loss_accepted(directory).map_err(io)?) {
        return Ok(losses);
    }
    if !losses.is_empty() {
        let none = Losses::default();
        disk.set_losses(&none).map_err(|error| OpenError::engine(directory, error))?;
    }
    restored::clear_acceptance(directory).map_err(io)?;
    Ok(Losses::default())
}

/// The shared state as the disk has it.
pub(crate) fn recovered(
    disk: Disk,
    time: Time,
    log: &Recovered,
    hot_bytes: u64,
    bounds: Bounds,
) -> Result<State, OpenError> {
    let next = log.row.fences_reserved.max(1);
    let fences = Fences::starting_at(next, next);
    let state = State::new(disk, time, hot_bytes, bounds, fences);
    let now = state.now();
    let mut unread = Vec::new();
    let mut candidates = Candidates::default();
    for id in log.unsettled.iter().copied() {
        let found = match state.record_on_disk(&id) {
            Ok(found) => found,
            // Steps on it say so, and all others go on.
            Err(error) if error.kind() == StoreErrorKind::Damaged => {
                unread.push(id);
                continue;
            }
            Err(error) => return Err(OpenError::Damaged(error)),
        };
        match found {
            Some((stored, bytes)) if is_settled(&stored.entry) => {
                candidates.add(id, stored, bytes);
            }
            Some((stored, bytes)) => keep_in_memory(&state, id, stored, bytes, now),
            None => {}
        }
    }
    for (id, (stored, bytes)) in candidates.unindexed(&state.disk).map_err(OpenError::Damaged)? {
        keep_in_memory(&state, id, stored, bytes, now);
    }
    // The state is new, so this is the first call.
    let _ = state.unread.set(unread);
    if let Some(mut first) = state.table.each().next() {
        first.done = log.row.done;
    }
    Ok(state)
}

/// Puts a record into the table, as the disk has it.
fn keep_in_memory(state: &State, id: RecordId, mut stored: Stored, bytes: usize, now: Timestamp) {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    state.bounded.unsettled.replace(None, unsettled_bytes(&stored));
    let dirty = clock_floor::shift_back(&mut stored, state.clock_reset_at(), now);
    let live = Live {
        row: Some(Arc::new(Row { stored, bytes })),
        on_disk: DiskState::Live,
        dirty,
        pending: None,
        change: 1,
        queued: None,
        waiters: None,
    };
    state.table.of(&id).live.insert(id, live);
    state.order.insert(id);
}
