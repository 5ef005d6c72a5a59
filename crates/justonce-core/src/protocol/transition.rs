//! Every rule of the protocol, in one pure function.
//!
//! Stores repeat these rules in their own language (Lua, SQL, conditional writes) so that each
//! step stays one round trip. This function is the oracle they are compared with.

use std::sync::Arc;

use super::decision::{Change, Decision, existing, granted, keep, put, refuse, remove};
use super::record::{
    AwaitingRetry, Entry, Failed, InProgress, Record, Settled, State, Subject, Tombstone, Unknown,
    UnknownReason, handed_over,
};
use super::step::{
    Abandonment, Action, Answer, Begin, Busy, BusyWhy, Claimed, Existing, Failure, FailureKind,
    Lost, Replay, Resolution, Resolve, SweepDone, UnknownSince,
};
use super::timeline::{HowResolved, Note, NoteKind};
use super::view::{Lapsed, View, is_held, lapsed, view};
use crate::claim::{Checkpoint, Fence};
use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::outcome::Outcome;
use crate::policy::{AfterRetention, OnFailure, OnLapsed, Policy};

/// The rules: what a step at `now` does to what the store keeps.
///
/// `fresh` is a fence that the store has never given before, for any record: released and expired
/// records leave no fence behind. Only a begin that claims uses it.
#[must_use]
pub fn transition(
    entry: Option<&Entry>,
    action: &Action,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let view = view(entry, now);
    match action {
        Action::Begin(begin) => decide_begin(&view, begin, now, fresh),
        Action::Peek(fingerprint) => decide_peek(&view, fingerprint, now),
        Action::Sweep => decide_sweep(entry, &view, now),
        Action::Expire(fence) => decide_expire(&view, *fence, now),
        Action::Erase(fence) => decide_erase(&view, *fence),
        _ => decide_write(&view, action, now),
    }
}

fn decide_begin(view: &View<'_>, begin: &Begin, now: Timestamp, fresh: Fence) -> Decision {
    let record = match view {
        View::Absent => {
            return match begin.late_from().filter(|late| now >= *late) {
                Some(since) => existing(Existing::Expired(since)),
                None => claim_new(begin, now, fresh),
            };
        }
        View::Buried(tombstone) => return existing(Existing::Expired(tombstone.since)),
        View::Kept(record) => *record,
    };
    if let Some(claim) = same_call(record, begin, now) {
        return keep(Answer::Claimed(claim));
    }
    if !record.subject.fingerprint.agrees_with(&begin.fingerprint) {
        return existing(Existing::Mismatch);
    }
    match &record.state {
        State::InProgress(claim) if !claim.is_alive(now) => match lapsed(claim, record.attempt) {
            Lapsed::Hold(reason) => {
                hold(record, claim, reason, claim.lease_until, now, Answer::Held)
            }
            Lapsed::Free => claim_again(record, begin, claim.handed_over(), now, fresh),
        },
        State::Failed(Failed::AwaitingRetry(waiting)) if now >= waiting.retry_at => {
            let checkpoint = handed_over(&waiting.policy, waiting.checkpoint.as_ref());
            claim_again(record, begin, checkpoint, now, fresh)
        }
        _ => decide_peek(view, &begin.fingerprint, now),
    }
}

/// The claim that an earlier try of the same call took, if its reply was lost. Once the lease has
/// lapsed the call has no more right to it than any other.
fn same_call(record: &Record, begin: &Begin, now: Timestamp) -> Option<Claimed> {
    match &record.state {
        State::InProgress(claim) if claim.token == begin.token && claim.is_alive(now) => {
            Some(Claimed {
                fence: record.fence,
                attempt: record.attempt,
                checkpoint: claim.checkpoint.clone(),
                lease: claim.lease_until.since(now),
            })
        }
        _ => None,
    }
}

fn decide_peek(view: &View<'_>, fingerprint: &Fingerprint, now: Timestamp) -> Decision {
    let record = match view {
        View::Absent => return keep(Answer::Claimable),
        View::Buried(tombstone) => return existing(Existing::Expired(tombstone.since)),
        View::Kept(record) => record,
    };
    if !record.subject.fingerprint.agrees_with(fingerprint) {
        return existing(Existing::Mismatch);
    }
    let busy = |why, until: Timestamp| {
        existing(Existing::Busy(Busy { why, fence: record.fence, left: until.since(now) }))
    };
    match &record.state {
        State::Completed(settled) => existing(Existing::Completed(replay(settled, now))),
        State::Failed(Failed::Final(settled)) => existing(Existing::Failed(replay(settled, now))),
        State::Failed(Failed::AwaitingRetry(waiting)) if now < waiting.retry_at => {
            busy(BusyWhy::BackOff, waiting.retry_at)
        }
        State::Failed(Failed::AwaitingRetry(_)) => keep(Answer::Claimable),
        State::Unknown(unknown) => existing(Existing::Unknown(since(record, unknown.reason))),
        State::InProgress(claim) if claim.is_alive(now) => {
            busy(BusyWhy::Running, claim.lease_until)
        }
        State::InProgress(claim) => match lapsed(claim, record.attempt) {
            Lapsed::Free => keep(Answer::Claimable),
            Lapsed::Hold(reason) => {
                let since = claim.lease_until;
                let unknown = UnknownSince { fence: record.fence, since, reason };
                existing(Existing::Unknown(unknown))
            }
        },
    }
}

fn decide_sweep(entry: Option<&Entry>, view: &View<'_>, now: Timestamp) -> Decision {
    let swept =
        |change, done| Decision { change, answer: Answer::Swept(done), note: None, durable: false };
    match (entry, view) {
        (Some(_), View::Absent) => swept(Change::Remove, SweepDone::Removed),
        (Some(Entry::Record(_)), View::Buried(tombstone)) => {
            swept(Change::Put(Entry::Tombstone(*tombstone)), SweepDone::Buried)
        }
        (_, View::Kept(record)) => match &record.state {
            State::InProgress(claim) if !claim.is_alive(now) => {
                match lapsed(claim, record.attempt) {
                    Lapsed::Hold(reason) => {
                        let answer = |_| Answer::Swept(SweepDone::Held);
                        hold(record, claim, reason, claim.lease_until, now, answer)
                    }
                    Lapsed::Free => keep(Answer::Swept(SweepDone::Kept)),
                }
            }
            _ => keep(Answer::Swept(SweepDone::Kept)),
        },
        _ => keep(Answer::Swept(SweepDone::Kept)),
    }
}

/// The end of a retention, brought forward: what remains is what time would have left.
fn decide_expire(view: &View<'_>, fence: Fence, now: Timestamp) -> Decision {
    let View::Kept(record) = view else {
        return keep(Answer::Lost(Lost::Gone));
    };
    let settled = match ended(record, fence) {
        Ok(settled) => settled,
        Err(lost) => return keep(Answer::Lost(lost)),
    };
    match settled.after_retention {
        AfterRetention::New => remove(Answer::Applied),
        AfterRetention::Refuse(life) => {
            let tombstone = Tombstone { fence, since: now, until: now.after(life) };
            Decision { change: Change::Put(Entry::Tombstone(tombstone)), ..remove(Answer::Applied) }
        }
    }
}

/// Nothing remains, also of a tombstone: the next begin finds a new operation.
fn decide_erase(view: &View<'_>, fence: Fence) -> Decision {
    let erasable = match view {
        View::Absent => Err(Lost::Gone),
        View::Buried(tombstone) if tombstone.fence != fence => Err(Lost::Superseded),
        View::Buried(_) => Ok(()),
        View::Kept(record) => ended(record, fence).map(|_| ()),
    };
    match erasable {
        Ok(()) => remove(Answer::Applied),
        Err(lost) => keep(Answer::Lost(lost)),
    }
}

/// How an operation ended, if it did under this fence. What may still run, or be tried again, or
/// must be found out first, is kept.
fn ended(record: &Record, fence: Fence) -> Result<&Settled, Lost> {
    if record.fence != fence {
        return Err(Lost::Superseded);
    }
    match &record.state {
        State::Completed(settled) | State::Failed(Failed::Final(settled)) => Ok(settled),
        State::InProgress(_) | State::Unknown(_) | State::Failed(Failed::AwaitingRetry(_)) => {
            Err(Lost::NotEnded)
        }
    }
}

/// The writes: each carries its fence, and with an old one changes nothing.
fn decide_write(view: &View<'_>, action: &Action, now: Timestamp) -> Decision {
    let Some(fence) = action.fence() else {
        return keep(Answer::Lost(Lost::Gone));
    };
    let View::Kept(record) = view else {
        return keep(Answer::Lost(Lost::Gone));
    };
    if record.fence != fence {
        return refuse(action, fence, Lost::Superseded, now);
    }
    match (&record.state, action) {
        (State::InProgress(claim), Action::Renew(_) | Action::Checkpoint(..))
            if is_held(claim, record.attempt, now) =>
        {
            refuse(action, fence, Lost::Held, now)
        }
        (State::InProgress(claim), Action::Renew(_)) => renew(record, claim, now),
        (State::InProgress(claim), Action::Checkpoint(_, point))
            if claim.checkpoint.as_ref().is_some_and(|last| is_covered(point, last)) =>
        {
            keep(Answer::Applied)
        }
        (State::InProgress(claim), Action::Checkpoint(_, point)) => {
            let claim = InProgress { checkpoint: Some(point.clone()), ..claim.clone() };
            let kind = NoteKind::Checkpointed(Arc::from(point.name()));
            put(record, State::InProgress(claim), now, Some(kind), true)
        }
        (State::InProgress(claim), Action::Abandon(_, why)) => abandon(record, claim, why, now),
        (State::InProgress(claim), Action::Resolve(_, resolve))
            if is_held(claim, record.attempt, now) =>
        {
            resolve_unknown(record, &claim.policy, resolve, now)
        }
        (State::InProgress(_), Action::Resolve(..)) => refuse(action, fence, Lost::NotUnknown, now),
        (State::InProgress(claim), _) => settle(record, &claim.policy, action, now),
        // The owner of an unknown operation may come back and know.
        (State::Unknown(unknown), Action::Resolve(_, resolve)) => {
            resolve_unknown(record, &unknown.policy, resolve, now)
        }
        (State::Unknown(_), Action::Abandon(..)) => keep(Answer::Applied),
        (State::Unknown(_), Action::Renew(_) | Action::Checkpoint(..)) => {
            refuse(action, fence, Lost::Held, now)
        }
        (State::Unknown(unknown), _) => settle(record, &unknown.policy, action, now),
        (_, action) if says_the_same(record, action) => keep(Answer::Applied),
        _ => refuse(action, fence, Lost::Settled, now),
    }
}

/// Whether a point is the last one again, or a late copy of one before it.
fn is_covered(point: &Checkpoint, last: &Checkpoint) -> bool {
    point == last || point.number() < last.number()
}

/// Whether a settled operation ended just as this write says: then it is a repetition.
fn says_the_same(record: &Record, action: &Action) -> bool {
    match (&record.state, action) {
        (State::Completed(settled), Action::Complete(_, outcome)) => settled.outcome == *outcome,
        (State::Failed(Failed::Final(settled)), Action::Fail(_, failure)) => {
            settled.outcome == failure.outcome
        }
        (State::Failed(Failed::AwaitingRetry(waiting)), Action::Fail(_, failure)) => {
            let released = waiting.policy.on_failure == OnFailure::Release;
            failure.kind == FailureKind::Passing && (released || waiting.failure == failure.outcome)
        }
        (State::Failed(Failed::AwaitingRetry(waiting)), Action::Release(_)) => {
            record.is_free(waiting)
        }
        (state, Action::Resolve(_, resolve)) => match (state, &resolve.resolution) {
            (State::Failed(Failed::AwaitingRetry(waiting)), Resolution::Release) => {
                record.is_free(waiting)
            }
            (State::Completed(settled), Resolution::Complete(outcome))
            | (State::Failed(Failed::Final(settled)), Resolution::Fail(outcome)) => {
                settled.outcome == *outcome
            }
            _ => false,
        },
        _ => false,
    }
}

/// Complete, fail and release by the owner.
fn settle(record: &Record, policy: &Arc<Policy>, action: &Action, now: Timestamp) -> Decision {
    match action {
        Action::Complete(_, outcome) => {
            let settled = settled(policy, outcome, now);
            put(record, State::Completed(settled), now, Some(NoteKind::Completed), true)
        }
        Action::Fail(_, failure) => fail(record, policy, failure, now),
        _ => release(record, policy, now),
    }
}

fn fail(record: &Record, policy: &Arc<Policy>, failure: &Failure, now: Timestamp) -> Decision {
    let back_off = match (failure.kind, policy.on_failure) {
        (FailureKind::Passing, OnFailure::Release) => return release(record, policy, now),
        (FailureKind::Passing, OnFailure::Retry(b)) if !policy.is_last(record.attempt) => Some(b),
        _ => None,
    };
    let Some(back_off) = back_off else {
        let state = State::Failed(Failed::Final(settled(policy, &failure.outcome, now)));
        return put(record, state, now, Some(NoteKind::FailedForGood), true);
    };
    let retry_at = back_off.until(now, record.attempt, failure.jitter);
    let waiting = AwaitingRetry {
        failure: failure.outcome.clone(),
        retry_at,
        // Counted from the moment it may be tried again: a retry must never come too late.
        expires_at: retry_at.after(policy.retention),
        policy: Arc::clone(policy),
        checkpoint: checkpoint_of(&record.state),
    };
    let state = State::Failed(Failed::AwaitingRetry(waiting));
    put(record, state, now, Some(NoteKind::FailedForNow), true)
}

/// The first attempt leaves nothing behind. A later one says nothing about those before it: their
/// count and their checkpoint stay, and the next begin claims at once.
fn release(record: &Record, policy: &Arc<Policy>, now: Timestamp) -> Decision {
    if record.attempt <= 1 {
        return remove(Answer::Applied);
    }
    free(record, policy, checkpoint_of(&record.state), now, NoteKind::Released)
}

/// The next begin claims at once. The attempt that did nothing does not count.
fn free(
    record: &Record,
    policy: &Arc<Policy>,
    checkpoint: Option<Checkpoint>,
    now: Timestamp,
    note: NoteKind,
) -> Decision {
    let waiting = AwaitingRetry {
        failure: Outcome::empty(),
        retry_at: now,
        expires_at: now.after(policy.retention),
        policy: Arc::clone(policy),
        checkpoint,
    };
    let attempt = record.attempt.saturating_sub(1);
    let before = Record { attempt, ..record.clone() };
    put(&before, State::Failed(Failed::AwaitingRetry(waiting)), now, Some(note), true)
}

fn renew(record: &Record, claim: &InProgress, now: Timestamp) -> Decision {
    let cap = claim.claimed_at.after(claim.policy.lease_cap);
    if now >= cap {
        return keep(Answer::Capped);
    }
    // A clock that stepped back must not shorten a lease that was already granted.
    let lease_until = now.after(claim.policy.lease).min(cap).max(claim.lease_until);
    let state = State::InProgress(InProgress { lease_until, ..claim.clone() });
    let answer = Answer::Renewed(lease_until.since(now));
    Decision { answer, ..put(record, state, now, None, false) }
}

fn abandon(record: &Record, claim: &InProgress, why: &Abandonment, now: Timestamp) -> Decision {
    let Abandonment { reason, cause } = why.clone();
    if claim.policy.on_lapsed == OnLapsed::Hold {
        let since = claim.lease_until.min(now);
        let held = hold(record, claim, reason, since, now, Answer::Held);
        let kind = NoteKind::held(reason, cause);
        return Decision { note: Some(Note { at: now, fence: record.fence, kind }), ..held };
    }
    if !claim.is_alive(now) {
        return keep(Answer::Applied);
    }
    let state = State::InProgress(InProgress { lease_until: now, ..claim.clone() });
    put(record, state, now, Some(NoteKind::given_up(reason, cause)), false)
}

fn resolve_unknown(
    record: &Record,
    policy: &Arc<Policy>,
    resolve: &Resolve,
    now: Timestamp,
) -> Decision {
    let note = |how| NoteKind::Resolved(resolve.by.clone(), how, resolve.why.clone());
    match &resolve.resolution {
        Resolution::Complete(outcome) => {
            let state = State::Completed(settled(policy, outcome, now));
            put(record, state, now, Some(note(HowResolved::Completed)), true)
        }
        Resolution::Fail(outcome) => {
            let state = State::Failed(Failed::Final(settled(policy, outcome, now)));
            put(record, state, now, Some(note(HowResolved::Failed)), true)
        }
        // The record stays for a while, so that it can be seen who released it and why.
        Resolution::Release => free(record, policy, None, now, note(HowResolved::Released)),
    }
}

/// It does not run any more. The change is dated from the lapse of the lease, not from its
/// discovery.
fn hold(
    record: &Record,
    claim: &InProgress,
    reason: UnknownReason,
    since: Timestamp,
    now: Timestamp,
    answer: impl FnOnce(UnknownSince) -> Answer,
) -> Decision {
    let state = State::Unknown(Unknown {
        reason,
        owner: claim.owner.clone(),
        policy: Arc::clone(&claim.policy),
        checkpoint: claim.checkpoint.clone(),
    });
    let answer = answer(UnknownSince { fence: record.fence, since, reason });
    let held = put(record, state, since, None, true);
    let note = Note { at: now, fence: record.fence, kind: NoteKind::Held(reason) };
    Decision { answer, note: Some(note), ..held }
}

fn claim_new(begin: &Begin, now: Timestamp, fresh: Fence) -> Decision {
    let subject = Subject {
        scope: begin.scope.clone(),
        key: begin.key.clone(),
        fingerprint: begin.fingerprint,
        created_at: now,
    };
    let claim = claim_of(begin, None, now);
    let durable = begin.policy.on_lapsed != OnLapsed::Rerun;
    let fence = fresh.max(Fence::NONE.next());
    granted(Arc::new(subject), fence, 1, claim, durable, NoteKind::Claimed(begin.owner.clone()))
}

/// A claim on a record that exists is always durable: a crash must not forget that an attempt
/// was made.
fn claim_again(
    record: &Record,
    begin: &Begin,
    checkpoint: Option<Checkpoint>,
    now: Timestamp,
    fresh: Fence,
) -> Decision {
    let claim = claim_of(begin, checkpoint, now);
    let attempt = record.attempt.saturating_add(1);
    let subject = Arc::clone(&record.subject);
    let fence = fresh.max(record.fence.next());
    granted(subject, fence, attempt, claim, true, NoteKind::TakenOver(begin.owner.clone()))
}

fn claim_of(begin: &Begin, checkpoint: Option<Checkpoint>, now: Timestamp) -> InProgress {
    InProgress {
        owner: begin.owner.clone(),
        token: begin.token,
        claimed_at: now,
        lease_until: now.after(begin.policy.lease),
        policy: Arc::clone(&begin.policy),
        // Every claim counts its own points from the beginning.
        checkpoint: checkpoint.or_else(|| begin.checkpoint.clone()).map(|point| point.numbered(0)),
    }
}

fn settled(policy: &Policy, outcome: &Outcome, now: Timestamp) -> Settled {
    Settled {
        outcome: outcome.clone(),
        expires_at: now.after(policy.retention),
        after_retention: policy.after_retention,
    }
}

fn replay(settled: &Settled, now: Timestamp) -> Replay {
    Replay { outcome: settled.outcome.clone(), left: settled.expires_at.since(now) }
}

fn checkpoint_of(state: &State) -> Option<Checkpoint> {
    match state {
        State::InProgress(claim) => claim.checkpoint.clone(),
        State::Unknown(unknown) => unknown.checkpoint.clone(),
        State::Completed(_) | State::Failed(_) => None,
    }
}

fn since(record: &Record, reason: UnknownReason) -> UnknownSince {
    UnknownSince { fence: record.fence, since: record.changed_at, reason }
}
