//! The floor of time: a store's time never lies before what it was when the store was last open.
//!
//! One opening under a clock that is ahead moves the floor, and the store's time stays ahead by as
//! much, until an operator resets it. A reset makes outcomes and tombstones last longer, which
//! breaks no guarantee. Three things could, and are handled:
//!
//! - A UUIDv7 key that was issued before the reset, and that finds nothing, stays refused where
//!   late arrivals are refused: its outcome and its tombstone may have ended under the wrong clock.
//! - Claims that were taken under the wrong clock have lapsed: their owners ended with the process
//!   that had the store open.
//! - Age of what is unsettled, and the back-off of what waits for a retry, are counted from the
//!   reset.

use std::io;
use std::path::Path;
use std::time::Duration;

use justonce_core::store::{HealthWarning, Stored};
use justonce_core::{
    Action, Answer, Change, Decision, Entry, Existing, Failed, State, StateName, Timestamp,
    state_at,
};

/// The file by which an operator requests a reset.
const RESET_FILE: &str = "reset-clock-floor";
/// Clocks are often set back by less than this: no warning.
const TOLERATED: Duration = Duration::from_secs(10);

/// Whether an operator has requested a reset.
pub(crate) fn is_reset_requested(directory: &Path) -> io::Result<bool> {
    directory.join(RESET_FILE).try_exists()
}

/// Removes the request.
pub(crate) fn clear_reset_request(directory: &Path) -> io::Result<()> {
    match std::fs::remove_file(directory.join(RESET_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The warning for a store whose time is ahead of the clock.
pub(crate) fn warning(directory: &Path, ahead: Duration) -> Option<HealthWarning> {
    (ahead > TOLERATED).then(|| HealthWarning {
        name: "clock-floor-ahead",
        message: format!(
            "the store's time is {} s ahead of the machine's clock, because the store was once \
             open under a clock that was ahead: leases and retentions are right, but fresh keys \
             that carry their date (UUIDv7) may be refused as expired. If the clock is right now, \
             make an empty file {} and open the store again",
            ahead.as_secs(),
            directory.join(RESET_FILE).display()
        ),
    })
}

/// Brings what is unsettled back from a time that lies ahead: the store's time was brought back
/// since, now or before a crash or a backup that forgot this. It counts from then, so that it is
/// never younger than the backup. Returns whether that changed it.
pub(crate) fn shift_back(stored: &mut Stored, reset_at: Timestamp, now: Timestamp) -> bool {
    let Entry::Record(record) = &mut stored.entry else { return false };
    let before = record.changed_at;
    if before <= now {
        return false;
    }
    let since = if reset_at == Timestamp::ZERO { now } else { reset_at.min(now) };
    let shifted = |moment: Timestamp| since.after(moment.since(before));
    record.changed_at = since;
    match &mut record.state {
        State::InProgress(claim) => {
            claim.claimed_at = claim.claimed_at.min(since);
            claim.lease_until = since;
        }
        State::Failed(Failed::AwaitingRetry(waiting)) => {
            waiting.retry_at = shifted(waiting.retry_at);
            waiting.expires_at = shifted(waiting.expires_at);
        }
        State::Failed(Failed::Final(_)) | State::Completed(_) | State::Unknown(_) => {}
    }
    true
}

/// Counts the back-off of a record that lies on disk from the reset, where the record is from a
/// time that lies ahead. The record itself stays as it is: a reset reads no store through. Once the
/// time has come to where the record was written, its back-off runs once more.
pub(crate) fn count_from_reset(stored: &mut Stored, reset_at: Timestamp, now: Timestamp) {
    let Entry::Record(record) = &mut stored.entry else { return };
    let before = record.changed_at;
    if let State::Failed(Failed::AwaitingRetry(waiting)) = &mut record.state
        && before > now
    {
        waiting.retry_at = reset_at.after(waiting.retry_at.since(before));
        record.changed_at = reset_at;
    }
}

/// Refuses a begin that finds nothing, if its key was issued before the reset and late arrivals
/// are refused.
pub(crate) fn refuse_older(
    decision: Decision,
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    clock_reset_at: Timestamp,
) -> Decision {
    let Action::Begin(begin) = action else { return decision };
    let finds_nothing = entry.is_none_or(|entry| state_at(entry, now) == StateName::Absent);
    let claims = matches!(decision.answer, Answer::Claimed(_));
    let is_older = begin.key.issued_at().is_some_and(|issued| issued < clock_reset_at);
    match begin.late_from().filter(|_| finds_nothing && claims && is_older) {
        None => decision,
        Some(late) => {
            let answer = Answer::Existing(Existing::Expired(late.min(now)));
            Decision { change: Change::Keep, answer, note: None, durable: false }
        }
    }
}
