//! One step of the protocol: decided by the caller under a short lock, made durable by the writer.

use std::mem;
use std::sync::Arc;

use justonce_core::store::Stored;
use justonce_core::{
    Action, Answer, Change, ClaimEnd, Decision, Entry, Existing, Fence, RecordId, StoreError,
    StoreErrorKind, StoreResult, codec, ends_claim,
};

use crate::bounds::unsettled_bytes;
use crate::commit::{Closed, GroupCommit, Ticket};
use crate::rows::RowWrite;
use crate::state::{Found, Live, Row, Shard, State, closed, is_settled};
use crate::write::{DiskOp, DiskState, Write};

/// What came of trying a step.
pub(crate) enum StepResult {
    /// It is decided. The answer may be returned once the ticket is durable.
    Decided(Answer, Option<Ticket>),
    /// No fence may be given before more are reserved on disk.
    NoFences,
}

/// What came of trying a step without a slow look at the disk.
pub(crate) enum Attempt {
    /// It was made.
    Made(StepResult),
    /// The record is not in memory. The number shows later whether it has been there since.
    NeedsDisk(u64),
}

/// What the table says of a step.
enum InTable {
    Decided(StoreResult<StepResult>),
    /// The record is not there. The number shows later whether it has been since.
    Not(u64),
}

/// Takes steps on the shared state.
pub(crate) struct Stepper<'a> {
    pub(crate) state: &'a State,
    pub(crate) commits: &'a GroupCommit<Write>,
}

/// What is kept before the step.
struct Before {
    row: Option<Arc<Row>>,
    on_disk: DiskState,
    live: Option<Live>,
    /// The rows that go with the step.
    rows: Vec<RowWrite>,
}

impl Before {
    /// About how much memory it takes; nothing if it is not unsettled in the table.
    fn unsettled_bytes(&self) -> Option<u64> {
        let row = self.live.as_ref().and_then(|live| live.row.as_ref());
        row.and_then(|row| unsettled_bytes(&row.stored))
    }
}

impl Stepper<'_> {
    /// Decides a step, and carries the decision out if it changes anything.
    pub(crate) fn attempt(&self, id: RecordId, action: &Action) -> StoreResult<StepResult> {
        self.attempt_with(id, action, Vec::new())
    }

    /// The same, with rows that are written if the step changes anything.
    pub(crate) fn attempt_with(
        &self,
        id: RecordId,
        action: &Action,
        mut rows: Vec<RowWrite>,
    ) -> StoreResult<StepResult> {
        loop {
            let left = match self.in_table(id, action, &mut rows) {
                InTable::Decided(result) => return result,
                InTable::Not(left) => left,
            };
            let found = self.state.settled(&id)?;
            if let Some(result) = self.with_found(id, action, &rows, found, left)? {
                return Ok(result);
            }
        }
    }

    /// Decides a step unless that needs a slow look at the disk.
    pub(crate) fn attempt_fast(&self, id: RecordId, action: &Action) -> StoreResult<Attempt> {
        loop {
            let left = match self.in_table(id, action, &mut Vec::new()) {
                InTable::Decided(result) => return result.map(Attempt::Made),
                InTable::Not(left) => left,
            };
            let found = match self.state.cached(&id) {
                None if !self.state.reads.are_fast() => return Ok(Attempt::NeedsDisk(left)),
                None => self.state.read(&id)?,
                found => found,
            };
            if let Some(result) = self.with_found(id, action, &[], found, left)? {
                return Ok(Attempt::Made(result));
            }
        }
    }

    /// A step on a record if it is in the table; else what a later look must know.
    fn in_table(&self, id: RecordId, action: &Action, rows: &mut Vec<RowWrite>) -> InTable {
        let mut shard = self.state.table.of(&id);
        match self.step_live(&mut shard, id, action, rows) {
            Some(result) => InTable::Decided(result),
            None => InTable::Not(shard.left),
        }
    }

    /// A step on a record that was not in the table: what was found of it counts, and finding it
    /// needed no lock. Nothing if the record has changed since.
    pub(crate) fn with_found(
        &self,
        id: RecordId,
        action: &Action,
        rows: &[RowWrite],
        found: Option<Found>,
        left: u64,
    ) -> StoreResult<Option<StepResult>> {
        let fresh = match (action, &found) {
            (Action::Begin(_), None) => self.state.fences.allocate(),
            _ => Some(Fence::NONE),
        };
        let Some(fresh) = fresh else { return Ok(Some(StepResult::NoFences)) };
        let entry = found.as_ref().map(|found| &found.row.stored.entry);
        let decision = self.state.decide(entry, action, fresh);
        // Rows go with claims that are alive; those are in the table.
        if leaves_out(rows, &decision) {
            return Err(rows_left_out());
        }
        if changes_nothing(&decision) {
            if let Some(Found { row, cached: false }) = &found {
                self.state.remember(&id, row, left);
            }
            return Ok(Some(StepResult::Decided(decision.answer, None)));
        }
        let mut shard = self.state.table.of(&id);
        if shard.left != left || shard.live.contains_key(&id) {
            return Ok(None);
        }
        let row = found.map(|found| found.row);
        let on_disk = row.as_ref().map_or(DiskState::Absent, |row| {
            DiskState::Done(row.stored.entry.state_name(), row.bytes)
        });
        let before = Before { row, on_disk, live: None, rows: Vec::new() };
        self.decide(&mut shard, id, action, before, decision, fresh).map(Some)
    }

    /// A step on a record that is in the table.
    fn step_live(
        &self,
        shard: &mut Shard,
        id: RecordId,
        action: &Action,
        rows: &mut Vec<RowWrite>,
    ) -> Option<StoreResult<StepResult>> {
        let live = shard.live.get(&id)?;
        let entry = live.row.as_ref().map(|row| &row.stored.entry);
        let decision = self.state.decide(entry, action, Fence::NONE);
        if changes_nothing(&decision) {
            if leaves_out(rows, &decision) {
                return Some(Err(rows_left_out()));
            }
            let awaited =
                |ticket: &&Ticket| !ticket.is_durable() && needs_durability(&decision.answer);
            let pending = live.pending.as_ref().filter(awaited).cloned();
            return Some(Ok(StepResult::Decided(decision.answer, pending)));
        }
        let live = shard.live.remove(&id)?;
        let (row, on_disk, rows) = (live.row.clone(), live.on_disk, mem::take(rows));
        let before = Before { row, on_disk, live: Some(live), rows };
        Some(self.decide(shard, id, action, before, decision, Fence::NONE))
    }

    /// Carries a decision out under the lock, after giving a claim its fence. On an error the table
    /// is as it was.
    fn decide(
        &self,
        shard: &mut Shard,
        id: RecordId,
        action: &Action,
        before: Before,
        decision: Decision,
        fresh: Fence,
    ) -> StoreResult<StepResult> {
        if let Err(error) = self.admit(action, &before, &decision) {
            restore(shard, id, before);
            return Err(error);
        }
        if fresh != Fence::NONE || !matches!(decision.answer, Answer::Claimed(_)) {
            return self.carry_out(shard, id, before, decision);
        }
        let Some(fresh) = self.state.fences.allocate() else {
            restore(shard, id, before);
            return Ok(StepResult::NoFences);
        };
        let entry = before.row.as_ref().map(|row| &row.stored.entry);
        let decision = self.state.decide(entry, action, fresh);
        self.carry_out(shard, id, before, decision)
    }

    /// Whether the store can take a write now.
    fn admit(&self, action: &Action, before: &Before, decision: &Decision) -> StoreResult<()> {
        self.state.writable()?;
        self.state.bounded.admit_write(action)?;
        // What is in the place of another takes no more memory. What a restored store holds though
        // it finds nothing of it comes to be in memory as a claim does.
        let comes = matches!(decision.answer, Answer::Claimed(_) | Answer::Held(_));
        if comes && before.unsettled_bytes().is_none() {
            self.state.bounded.admit_claim()?;
        }
        Ok(())
    }

    fn carry_out(
        &self,
        shard: &mut Shard,
        id: RecordId,
        mut before: Before,
        decision: Decision,
    ) -> StoreResult<StepResult> {
        let rows = mem::take(&mut before.rows);
        // A claim that was lost writes nothing but that.
        let rows = if decision.answer == Answer::Applied { rows } else { Vec::new() };
        let durable = decision.durable || !rows.is_empty();
        let ended = match (&before.row, &decision.change) {
            (Some(row), Change::Put(after)) => ends_claim(&row.stored.entry, Some(after)),
            (Some(row), Change::Remove) => ends_claim(&row.stored.entry, None),
            _ => false,
        };
        let stored = before.row.as_ref().map(|row| row.stored.clone());
        let (after, answer) = decision.carry_out(stored);
        let change = before.live.as_ref().map_or(0, |live| live.change) + 1;
        let planned = plan(id, change, before.on_disk, after, durable);
        let queued = planned.write.map(|write| self.queue(write, rows, durable)).transpose();
        let Ok(ticket) = queued else {
            restore(shard, id, before);
            self.state.writable()?;
            return Err(closed());
        };
        // From here on the decision stands.
        let unsettled = planned.row.as_ref().and_then(|row| unsettled_bytes(&row.stored));
        self.state.bounded.unsettled.replace(before.unsettled_bytes(), unsettled);
        let was_live = before.live.is_some();
        let (old_pending, old_queued, mut waiters) = before
            .live
            .map_or((None, None, None), |live| (live.pending, live.queued, live.waiters));
        if ended && let Some(waiters) = waiters.take() {
            let row = planned.row.as_ref();
            let end = row.and_then(|row| ClaimEnd::of(&row.stored.entry, self.state.now()));
            waiters.end((end, ticket.clone().or_else(|| old_pending.clone())));
        }
        if !was_live {
            self.state.hot.remove(&id);
            if let DiskState::Done(state, bytes) = before.on_disk {
                shard.undone.add(state, u64::from(bytes));
            }
        }
        let wait = ticket.clone().filter(|_| durable);
        let queued = ticket.as_ref().map(|_| change).or(old_queued);
        // What is gone stays in the table until the engine has let go of it too: whoever finds
        // nothing here believes the engine.
        let keep = planned.row.is_some() || queued.is_some();
        if keep {
            let pending = ticket.or(old_pending);
            let Planned { row, on_disk, dirty, .. } = planned;
            shard.live.insert(id, Live { row, on_disk, dirty, pending, change, queued, waiters });
        } else {
            shard.left += 1;
        }
        match (was_live, keep) {
            (false, true) => self.state.order.insert(id),
            (true, false) => self.state.order.remove(&id),
            _ => {}
        }
        Ok(StepResult::Decided(answer, wait))
    }

    /// Hands a write to the writer, with the rows that go with it.
    fn queue(&self, write: Write, rows: Vec<RowWrite>, durable: bool) -> Result<Ticket, Closed> {
        let count = |write: Write| {
            let queued_bytes = write.bytes();
            self.state.bounded.queued.add(queued_bytes);
            Write { queued_bytes, ..write }
        };
        if rows.is_empty() {
            // The work of a sweep, for which no caller waits, does not wake the writer.
            let enqueue =
                if durable { GroupCommit::enqueue } else { GroupCommit::enqueue_deferred };
            return enqueue(self.commits, count(write));
        }
        self.state.rows.queue(rows, |rows, rows_change| {
            self.commits.enqueue(count(Write { rows, rows_change, ..write }))
        })
    }
}

/// What a decision means for the disk and the table.
struct Planned {
    row: Option<Arc<Row>>,
    on_disk: DiskState,
    dirty: bool,
    write: Option<Write>,
}

/// Where the record goes. What need not be durable and is not settled stays in memory.
fn plan(
    id: RecordId,
    change: u64,
    from: DiskState,
    after: Option<Stored>,
    durable: bool,
) -> Planned {
    let write = |op, adds, expires_at| Write {
        id,
        change,
        op,
        replaces: from,
        adds,
        expires_at,
        ..Write::empty()
    };
    let Some(stored) = after else {
        let on_disk = from != DiskState::Absent;
        let write = on_disk.then(|| write(Some(DiskOp::Remove), DiskState::Absent, None));
        return Planned { row: None, on_disk: DiskState::Absent, dirty: false, write };
    };
    let settled = is_settled(&stored.entry);
    if !settled && !durable {
        // In memory only. An old outcome in its place on disk has expired, and counts as nothing.
        let row = Row { bytes: size_in_memory(&stored), stored };
        return Planned { row: Some(Arc::new(row)), on_disk: from, dirty: true, write: None };
    }
    let bytes = codec::encode(&id, &stored);
    let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let on_disk =
        if settled { DiskState::Done(stored.entry.state_name(), size) } else { DiskState::Live };
    let expires_at = stored.entry.expires_at().filter(|_| settled);
    let write = write(Some(DiskOp::Put(bytes)), on_disk, expires_at);
    let row = Some(Arc::new(Row { stored, bytes: size }));
    Planned { row, on_disk, dirty: false, write: Some(write) }
}

/// About what an unsettled record would take on disk, without encoding it.
fn size_in_memory(stored: &Stored) -> u32 {
    let names = match &stored.entry {
        Entry::Record(record) => {
            record.subject.scope.as_str().len() + record.subject.key.as_str().len()
        }
        Entry::Tombstone(_) => 0,
    };
    u32::try_from(names + 128).unwrap_or(u32::MAX)
}

fn restore(shard: &mut Shard, id: RecordId, before: Before) {
    if let Some(live) = before.live {
        shard.live.insert(id, live);
    }
}

fn changes_nothing(decision: &Decision) -> bool {
    decision.change == Change::Keep && decision.note.is_none()
}

/// Whether a step would be said to be applied without the rows that go with it.
fn leaves_out(rows: &[RowWrite], decision: &Decision) -> bool {
    !rows.is_empty() && decision.answer == Answer::Applied
}

/// A repetition changes nothing, so there is no write for the rows to be part of; and rows that
/// were written alone would be written again by a resumed operation.
fn rows_left_out() -> StoreError {
    StoreError::not_applied(
        StoreErrorKind::Protocol,
        "the checkpoint or the outcome is stored already, so the rows were not written with it",
    )
}

/// Whether what an answer says must be on disk before it is returned. *Busy* and *mismatch* make no
/// such promise.
const fn needs_durability(answer: &Answer) -> bool {
    !matches!(answer, Answer::Existing(Existing::Busy(_) | Existing::Mismatch) | Answer::Claimable)
}

/// Waits until a decision is on disk.
pub(crate) async fn durable(ticket: &Ticket) -> StoreResult<()> {
    ticket.durable().await.map_err(|why| {
        let message = format!("the embedded store could not write and has stopped: {why}");
        StoreError::maybe_applied(StoreErrorKind::Stopped, message)
    })
}
