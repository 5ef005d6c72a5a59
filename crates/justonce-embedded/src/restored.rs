//! What a store that was restored from a backup makes of operations that it may have lost.
//!
//! What was acknowledged between the backup and the loss of the store is not in it. A begin that
//! finds nothing may be of such an operation:
//!
//! - Its key says when it was issued (UUIDv7), and that lies in the time that was lost: the
//!   operation becomes *unknown*, as one whose claim lapsed. Under `rerun` it is executed: that
//!   policy allows it whenever a claim is lost.
//! - Its key says nothing: it cannot be told apart from a new one. It is new, unless the restore
//!   was told to hold such operations for a while.
//!
//! A begin that would claim again what the backup has as interrupted or waiting for a retry may be
//! of an operation that went on after the backup. It becomes unknown too, except under `rerun`.
//!
//! Fences go on above all that the lost store can have given.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::HealthWarning;
use justonce_core::{
    Action, Answer, Begin, Change, Checkpoint, Decision, Entry, Failed, Fence, Note, NoteKind,
    OnLapsed, Owner, Policy, Record, State, StateName, Subject, Timestamp, Unknown, UnknownReason,
    UnknownSince, Why, state_at,
};

use crate::utc::utc;

/// The file by which an operator takes what was lost for not executed.
const ACCEPT_FILE: &str = "accept-lost";
/// So many restores are told apart. The oldest two count as one before there are more.
const MAX_LOSSES: usize = 16;
const WORDS: usize = 7;
/// A restored store goes on so many fences above those that the backup knows of...
const FENCES_AT_LEAST: u64 = 1 << 40;
/// ...and so many more for each millisecond that has passed since: no store gives that many.
const FENCES_A_MS: u64 = 1 << 12;

/// Time of which the store may lack operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    /// When the backup was made.
    pub(crate) taken_at: Timestamp,
    /// When it was restored.
    pub(crate) restored_at: Timestamp,
    /// Keys that were issued from here on...
    pub(crate) issued_from: Timestamp,
    /// ...and before this moment may be of operations that were lost.
    pub(crate) issued_until: Timestamp,
    /// Before this moment keys that do not say when they were issued may be, too.
    pub(crate) undated_until: Timestamp,
    /// When anything in the backup was changed last: what has not changed since may have done so.
    pub(crate) last_change: Timestamp,
    /// Claims with a lower fence are from before the restore.
    pub(crate) fences_from: u64,
}

/// All that the store may have lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses(Vec<Loss>);

impl Losses {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a restore: what was lost before is still lost.
    pub(crate) fn add(&mut self, loss: Loss) {
        self.0.push(loss);
        while self.0.len() > MAX_LOSSES {
            let oldest = self.0.remove(0);
            if let Some(next) = self.0.first_mut() {
                next.taken_at = next.taken_at.min(oldest.taken_at);
                next.issued_from = next.issued_from.min(oldest.issued_from);
                next.issued_until = next.issued_until.max(oldest.issued_until);
                next.undated_until = next.undated_until.max(oldest.undated_until);
                next.last_change = next.last_change.max(oldest.last_change);
                next.fences_from = next.fences_from.max(oldest.fences_from);
            }
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let words = |loss: &Loss| {
            [
                loss.taken_at,
                loss.restored_at,
                loss.issued_from,
                loss.issued_until,
                loss.undated_until,
                loss.last_change,
            ]
            .map(Timestamp::as_millis)
            .into_iter()
            .chain([loss.fences_from])
        };
        self.0.iter().flat_map(words).flat_map(u64::to_be_bytes).collect()
    }

    /// Reads them back; nothing if these were written in another way.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<_> = words.iter().map(|word| u64::from_be_bytes(*word)).collect();
        let (losses, more) = words.as_chunks::<WORDS>();
        let losses = losses.iter().map(|&[times @ .., fences_from]| {
            let [taken_at, restored_at, issued_from, issued_until, undated_until, last_change] =
                times.map(Timestamp::from_millis);
            Loss {
                taken_at,
                restored_at,
                issued_from,
                issued_until,
                undated_until,
                last_change,
                fences_from,
            }
        });
        (rest.is_empty() && more.is_empty()).then(|| Self(losses.collect()))
    }

    /// The restore by which an operation may have been lost.
    fn of(&self, begin: &Begin, clock_now: Timestamp) -> Option<&Loss> {
        let issued = begin.key.issued_at();
        self.0.iter().find(|loss| match issued {
            Some(issued) => loss.issued_from <= issued && issued < loss.issued_until,
            None => clock_now < loss.undated_until,
        })
    }

    /// The restore since which a record has not changed.
    fn since(&self, record: &Record) -> Option<&Loss> {
        self.0.iter().rev().find(|loss| {
            record.fence.get() < loss.fences_from && record.changed_at <= loss.last_change
        })
    }

    /// The warning for a store that was restored.
    pub(crate) fn warning(&self, directory: &Path) -> Option<HealthWarning> {
        let last = self.0.last()?;
        Some(HealthWarning {
            name: "restored-from-backup",
            message: format!(
                "the store was restored at {} from a backup that was made at {}: what was \
                 acknowledged between is not in it. Operations whose keys carry a date (UUIDv7) \
                 from {} to {} and that are not found become unknown, and so does \
                 what was interrupted or waiting then, except under rerun; operations with other \
                 keys that are not found {}. To take all that is not found for new, make an \
                 empty file {} and open the store again",
                utc(last.restored_at),
                utc(last.taken_at),
                utc(last.issued_from),
                utc(last.issued_until),
                match last.undated_until > last.restored_at {
                    true => format!("do so until {}, then they are new", utc(last.undated_until)),
                    false => "are new, also if they were executed then".to_owned(),
                },
                directory.join(ACCEPT_FILE).display()
            ),
        })
    }
}

/// Where the fences of a restored store go on: above all that the lost one can have given.
pub(crate) fn fences_after(reserved: u64, since_backup: Duration) -> u64 {
    let ms = u64::try_from(since_backup.as_millis()).unwrap_or(u64::MAX);
    reserved.saturating_add(FENCES_AT_LEAST).saturating_add(ms.saturating_mul(FENCES_A_MS))
}

/// Whether an operator takes what was lost for not executed.
pub(crate) fn is_loss_accepted(directory: &Path) -> io::Result<bool> {
    directory.join(ACCEPT_FILE).try_exists()
}

/// Removes the operator's file.
pub(crate) fn clear_acceptance(directory: &Path) -> io::Result<()> {
    match std::fs::remove_file(directory.join(ACCEPT_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What the store may have lost, and the machine's time: the store's may be ahead of it, and a
/// restore counts by the machine's.
#[derive(Clone, Copy)]
pub(crate) struct Lost<'a> {
    pub(crate) losses: &'a Losses,
    pub(crate) clock_now: Timestamp,
}

/// Makes an operation unknown that would be claimed, if it may have been executed in the time that
/// was lost. Without a fence the decision stays: it is made again with one.
pub(crate) fn hold_lost(
    decision: Decision,
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
    may_lack: Lost<'_>,
) -> Decision {
    let Action::Begin(begin) = action else { return decision };
    if !matches!(decision.answer, Answer::Claimed(_)) || fresh == Fence::NONE {
        return decision;
    }
    let held = match entry.filter(|entry| state_at(entry, now) != StateName::Absent) {
        None => lost(begin, now, fresh, may_lack),
        Some(entry) => interrupted(entry, now, fresh, may_lack.losses),
    };
    held.unwrap_or(decision)
}

/// What is not found, and may have been executed.
fn lost(
    begin: &Begin,
    now: Timestamp,
    fence: Fence,
    Lost { losses, clock_now }: Lost<'_>,
) -> Option<Decision> {
    let loss =
        losses.of(begin, clock_now).filter(|_| begin.policy.on_lapsed() != OnLapsed::Rerun)?;
    let subject = Subject {
        scope: begin.scope.clone(),
        key: begin.key.clone(),
        fingerprint: begin.fingerprint,
        created_at: now,
    };
    let (policy, checkpoint) = (&begin.policy, begin.checkpoint.as_ref());
    Some(held(Arc::new(subject), 1, policy, checkpoint, now, fence, loss))
}

/// What was interrupted or waiting at the backup, and may have gone on.
fn interrupted(entry: &Entry, now: Timestamp, fresh: Fence, losses: &Losses) -> Option<Decision> {
    let record = entry.record()?;
    let (policy, checkpoint) = match &record.state {
        State::InProgress(claim) => (&claim.policy, claim.checkpoint.as_ref()),
        State::Failed(Failed::AwaitingRetry(waiting)) => {
            (&waiting.policy, waiting.checkpoint.as_ref())
        }
        _ => return None,
    };
    if policy.on_lapsed() == OnLapsed::Rerun {
        return None;
    }
    let loss = losses.since(record)?;
    // Owners of that time are gone, and what they may say is about another claim.
    let fence = fresh.max(record.fence.next());
    let subject = Arc::clone(&record.subject);
    Some(held(subject, record.attempt, policy, checkpoint, now, fence, loss))
}

/// The operation as one whose claim has lapsed: nobody can tell what became of it.
fn held(
    subject: Arc<Subject>,
    attempt: u32,
    policy: &Arc<Policy>,
    checkpoint: Option<&Checkpoint>,
    now: Timestamp,
    fence: Fence,
    loss: &Loss,
) -> Decision {
    let reason = UnknownReason::Lapsed;
    let unknown = Unknown {
        reason,
        owner: Owner::new("not known"),
        policy: Arc::clone(policy),
        checkpoint: checkpoint.cloned(),
    };
    let state = State::Unknown(unknown);
    let record = Record { subject, fence, attempt, changed_at: now, state };
    let cause = format!(
        "the store was restored at {} from the backup of {}, and may lack what became of this",
        utc(loss.restored_at),
        utc(loss.taken_at)
    );
    let kind = NoteKind::HeldBecause(reason, Why::new(&cause));
    Decision {
        change: Change::Put(Entry::Record(record)),
        answer: Answer::Held(UnknownSince { fence, since: now, reason }),
        note: Some(Note { at: now, fence, kind }),
        durable: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(number: u64) -> Loss {
        let at = |n| Timestamp::from_millis(1000 * number + n);
        Loss {
            taken_at: at(1),
            restored_at: at(2),
            issued_from: at(3),
            issued_until: at(4),
            undated_until: at(5),
            last_change: at(6),
            fences_from: number,
        }
    }

    #[test]
    fn losses_read_back_and_the_oldest_are_joined_and_never_forgotten() {
        let mut losses = Losses::default();
        for number in 0..40 {
            losses.add(loss(number));
            assert_eq!(Losses::from_bytes(&losses.to_bytes()).as_ref(), Some(&losses));
        }
        assert_eq!(losses.0.len(), MAX_LOSSES);
        assert_eq!(losses.0.first().unwrap().issued_from, loss(0).issued_from);
        assert_eq!(losses.0.last(), Some(&loss(39)));
        assert_eq!(Losses::from_bytes(&losses.to_bytes()[1..]), None);
    }

    #[test]
    fn fences_go_on_above_what_can_have_been_given_and_stay_small() {
        let hour = Duration::from_secs(3600);
        let first = fences_after(7, hour);
        assert!(first >= 7 + FENCES_AT_LEAST + 3_600_000 * FENCES_A_MS);
        // The same backup, restored again an hour later: a million a second were given meanwhile.
        assert!(fences_after(7, hour * 2) > first + 3600 * 1_000_000);
        // Every language's numbers are exact up to here.
        assert!(fences_after(7, hour * 24 * 365 * 50) < 1 << 53);
    }
}
