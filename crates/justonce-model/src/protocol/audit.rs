//! The auditor: holds every step against the promises. It reads what the store kept before and
//! after and what was answered, and knows nothing of how the rules came to it.

use justonce_core::{
    Action, Answer, Begin, Change, Claimed, Entry, Existing, Failed, FailureKind, Fence, Lost,
    Note, NoteKind, OnFailure, OnLapsed, Record, State, StateName, Timestamp, Token,
};

use super::model::{Protocol, after as apply};
use crate::laws::Law;
use crate::world::{Broken, Ended, Point, Request, World, end_of};

/// A token that no worker of the model ever has.
const NEXT: Token = Token(3000);

/// One step as the auditor sees it.
struct Seen<'a> {
    world: &'a World,
    action: &'a Action,
    answer: &'a Answer,
    note: Option<&'a Note>,
    before: Option<&'a Entry>,
    after: Option<&'a Entry>,
    now: Timestamp,
}

impl Seen<'_> {
    fn unchanged(&self) -> bool {
        self.before == self.after
    }

    /// Whether it was this step that did it, and not an earlier try of the same.
    fn applied(&self) -> bool {
        *self.answer == Answer::Applied && !self.unchanged()
    }

    fn claimed(&self) -> Option<&Claimed> {
        match self.answer {
            Answer::Claimed(claimed) => Some(claimed),
            _ => None,
        }
    }

    fn after_state(&self) -> Option<&State> {
        Some(&self.after?.record()?.state)
    }
}

impl Protocol {
    /// The laws that are broken once this step is taken.
    pub(super) fn audit(
        &self,
        world: &World,
        action: &Action,
        (answer, note): (&Answer, Option<&Note>),
        after: Option<&Entry>,
    ) -> Broken {
        let (before, now) = (world.entry.as_ref(), world.now);
        let seen = Seen { world, action, answer, note, before, after, now };
        let mut broken = world.book.broken;
        broken.note(Law::Answers, self.answers(&seen));
        match action {
            Action::Begin(begin) => self.begins(&seen, begin, &mut broken),
            Action::Sweep | Action::Peek(_) => {}
            _ => self.writes(&seen, &mut broken),
        }
        if action.fence().is_none() {
            unasked(&seen, &mut broken);
        }
        self.times(&seen, &mut broken);
        holds(&seen, &mut broken);
        let fresh = world.book.issued.next().next();
        let again = (self.rules)(after, action, world.now, fresh);
        let same = again.change == Change::Keep || apply(None, again.change).as_ref() == after;
        let applied = matches!(answer, Answer::Applied | Answer::Held(_)) && after.is_some();
        let unknown = matches!(again.answer, Answer::Existing(Existing::Unknown(_)));
        let heard = !applied || again.answer == Answer::Applied || unknown;
        broken.note(Law::Repeatable, same && heard);
        broken
    }

    fn writes(&self, seen: &Seen<'_>, broken: &mut Broken) {
        let fence = seen.action.fence();
        if seen.before.map(Entry::fence) != fence {
            broken.note(Law::StaleFence, seen.unchanged());
            broken.note(Law::Answers, matches!(seen.answer, Answer::Lost(_)));
            return;
        }
        let Some(record) = seen.world.living() else {
            return;
        };
        let holds = self.setup.policy.on_lapsed() == OnLapsed::Hold || self.is_last(record);
        let unknown = match &record.state {
            State::Unknown(_) => true,
            State::InProgress(claim) => holds && seen.now >= claim.lease_until,
            State::Completed(_) | State::Failed(_) => return,
        };
        match seen.action {
            Action::Resolve(..) => {
                broken.note(Law::OnlyUnknown, unknown || seen.unchanged());
                broken.note(Law::OwnerSettles, !unknown || *seen.answer == Answer::Applied);
                let traced = matches!(seen.note, Some(Note { kind: NoteKind::Resolved(..), .. }));
                let traced = traced && seen.after.is_some();
                broken.note(Law::Trace, traced || *seen.answer != Answer::Applied);
            }
            Action::Renew(_) | Action::Checkpoint(..) if unknown => {
                broken.note(Law::Held, *seen.answer == Answer::Lost(Lost::Held));
            }
            Action::Renew(_) | Action::Checkpoint(..) => {
                broken.note(Law::OwnerSettles, !matches!(seen.answer, Answer::Lost(_)));
                let stored = self.stored_point(seen.after);
                broken.note(Law::LateCheckpoint, stored >= seen.world.book.point);
            }
            Action::Abandon(..) => {
                let taken = matches!(seen.answer, Answer::Applied | Answer::Held(_));
                broken.note(Law::OwnerSettles, taken);
            }
            _ => broken.note(Law::OwnerSettles, *seen.answer == Answer::Applied),
        }
        if self.gives_back(seen.action) && seen.applied() {
            self.given_back(seen, broken);
        }
    }

    /// What was given back is there for the next begin. Only whoever says that nothing happened
    /// at all says so of the claims before, too.
    fn given_back(&self, seen: &Seen<'_>, broken: &mut Broken) {
        let book = &seen.world.book;
        let point = match seen.action {
            Action::Resolve(..) => Point::Start,
            _ if book.attempts <= 1 => Point::Start,
            _ => self.due(book),
        };
        let next = self.action(Request::Begin(NEXT));
        let next = (self.rules)(seen.after, &next, seen.now, book.issued.next());
        let kept = match &next.answer {
            Answer::Claimed(claimed) => {
                let same = self.setup.point(claimed.checkpoint.as_ref()) == point;
                same && claimed.attempt == book.attempts
            }
            _ => false,
        };
        broken.note(Law::GivenBack, kept);
    }

    fn stored_point(&self, entry: Option<&Entry>) -> Point {
        self.setup.point(match entry.and_then(Entry::record).map(|record| &record.state) {
            Some(State::InProgress(claim)) => claim.checkpoint.as_ref(),
            _ => None,
        })
    }

    fn begins(&self, seen: &Seen<'_>, begin: &Begin, broken: &mut Broken) {
        let book = &seen.world.book;
        if let Some((fence, claim)) = seen.world.claim()
            && claim.token == begin.token
            && seen.now < claim.lease_until
        {
            let same = seen.claimed().is_some_and(|claimed| claimed.fence == fence);
            broken.note(Law::SameCall, same && seen.unchanged());
            return;
        }
        if let Some(claimed) = seen.claimed() {
            broken.note(Law::OneClaimPerFence, claimed.fence > book.issued);
            self.claims(seen, claimed, broken);
        }
        if let Some(ended) = &book.ended {
            self.after_the_end(seen, ended, broken);
        }
        let peek = Action::Peek(begin.fingerprint);
        let peek = (self.rules)(seen.before, &peek, seen.now, Fence::NONE);
        let agrees = match &peek.answer {
            Answer::Claimable => seen.claimed().is_some(),
            Answer::Existing(Existing::Unknown(found)) => {
                let unknown = Answer::Existing(Existing::Unknown(*found));
                [unknown, Answer::Held(*found)].contains(seen.answer)
            }
            other => other == seen.answer,
        };
        broken.note(Law::Peek, agrees && peek.change == Change::Keep);
    }

    /// A claim that was not there before.
    fn claims(&self, seen: &Seen<'_>, claimed: &Claimed, broken: &mut Broken) {
        let living = seen.world.living();
        let book = &seen.world.book;
        let attempt = living.map_or(0, |_| book.attempts) + 1;
        let counted = seen.after.and_then(Entry::record).map(|record| record.attempt);
        let within = self.setup.policy.max_attempts();
        let within = within.is_none_or(|max| attempt <= max.get());
        broken
            .note(Law::Attempts, claimed.attempt == attempt && counted == Some(attempt) && within);
        let due = living.map_or(Point::Start, |_| self.due(book));
        // The points of the new claim are numbered anew.
        let due = self.setup.checkpoint(due).map(|due| due.clone().numbered(0));
        broken.note(Law::HandedOver, claimed.checkpoint == due);
        match living.map(|record| &record.state) {
            Some(State::Unknown(_)) => broken.note(Law::UnknownStays, false),
            Some(State::InProgress(_)) => {
                let held = self.setup.policy.on_lapsed() == OnLapsed::Hold;
                broken.note(Law::UnknownStays, !held);
            }
            Some(State::Failed(Failed::AwaitingRetry(waiting))) => {
                broken.note(Law::BackOff, seen.now >= waiting.retry_at);
            }
            _ => {}
        }
    }

    /// A begin after the operation has come to an end.
    fn after_the_end(&self, seen: &Seen<'_>, ended: &Ended, broken: &mut Broken) {
        if seen.now < ended.until {
            let replayed = match seen.answer {
                Answer::Existing(Existing::Completed(replay) | Existing::Failed(replay)) => {
                    replay.outcome == ended.outcome && replay.left == ended.until.since(seen.now)
                }
                _ => false,
            };
            broken.note(Law::OutcomeStays, replayed);
        } else if seen.now < self.buried_until(ended) {
            let expired = Answer::Existing(Existing::Expired(ended.until));
            broken.note(Law::Tombstone, *seen.answer == expired);
        }
    }

    /// What only a clock or a policy can make wrong.
    fn times(&self, seen: &Seen<'_>, broken: &mut Broken) {
        let policy = &self.setup.policy;
        match seen.after_state() {
            Some(State::InProgress(claim)) => {
                let cap = claim.claimed_at.after(policy.lease_cap());
                let same = match seen.world.claim() {
                    Some((fence, old)) if Some(fence) == seen.after.map(Entry::fence) => {
                        old.claimed_at == claim.claimed_at
                    }
                    _ => true,
                };
                broken.note(Law::Cap, claim.lease_until <= cap && same);
            }
            Some(State::Failed(Failed::AwaitingRetry(waiting))) if !seen.unchanged() => {
                let pause = waiting.retry_at.since(seen.now);
                let kept = match policy.on_failure() {
                    _ if self.gives_back(seen.action) => pause.is_zero(),
                    OnFailure::Retry(back_off) => pause >= back_off.first / 2,
                    OnFailure::Replay | OnFailure::Release => false,
                };
                broken.note(Law::BackOff, kept);
            }
            _ => {}
        }
    }

    fn is_last(&self, record: &Record) -> bool {
        let max = self.setup.policy.max_attempts();
        max.is_some_and(|max| record.attempt >= max.get())
    }

    /// Whether the answer is what happened.
    fn answers(&self, seen: &Seen<'_>) -> bool {
        match (seen.answer, seen.action) {
            (Answer::Lost(_) | Answer::Capped | Answer::Claimable, _) => seen.unchanged(),
            // Only the step that made it unknown gets this answer.
            (Answer::Held(_), _) => {
                let before = seen.before.map(Entry::state_name);
                before == Some(StateName::InProgress)
                    && matches!(seen.after_state(), Some(State::Unknown(_)))
            }
            (Answer::Existing(_), _) => seen.unchanged(),
            (Answer::Applied, Action::Abandon(..)) => {
                seen.unchanged() || !matches!(seen.after_state(), Some(State::Unknown(_)))
            }
            (Answer::Applied, Action::Complete(_, outcome)) => end_of(seen.after) == Some(outcome),
            (Answer::Applied, Action::Fail(_, failure)) => match failure.kind {
                FailureKind::Permanent => end_of(seen.after) == Some(&failure.outcome),
                FailureKind::Passing => true,
            },
            (Answer::Applied, Action::Release(_)) => {
                let peek = Action::Peek(self.setup.begin.fingerprint);
                let free = (self.rules)(seen.after, &peek, seen.now, Fence::NONE);
                free.answer == Answer::Claimable
            }
            (Answer::Applied, Action::Checkpoint(_, saved)) => {
                self.stored_point(seen.after) >= self.setup.point(Some(saved))
            }
            (Answer::Claimed(claimed), Action::Begin(begin)) => {
                let fence = seen.after.map(Entry::fence) == Some(claimed.fence);
                let token = match seen.after_state() {
                    Some(State::InProgress(claim)) => claim.token == begin.token,
                    _ => false,
                };
                fence && token
            }
            _ => true,
        }
    }
}

/// A lapsed claim is held as of the lapse, not as of its discovery.
fn holds(seen: &Seen<'_>, broken: &mut Broken) {
    let (Some((_, claim)), Some(Entry::Record(after))) = (seen.world.claim(), seen.after) else {
        return;
    };
    if matches!(after.state, State::Unknown(_)) {
        broken.note(Law::Held, after.changed_at == claim.lease_until.min(seen.now));
    }
    if let Answer::Existing(Existing::Unknown(unknown)) | Answer::Held(unknown) = seen.answer {
        broken.note(Law::Held, unknown.since == after.changed_at);
    }
}

/// What may change without a step of the owner.
fn unasked(seen: &Seen<'_>, broken: &mut Broken) {
    if let Some((_, until)) = seen.world.book.promised
        && seen.now < until
    {
        broken.note(Law::LiveLease, seen.unchanged());
    }
    if matches!(seen.world.state(), Some(State::InProgress(_) | State::Unknown(_))) {
        let kept = seen.after.and_then(Entry::record).is_some();
        broken.note(Law::RetentionKeeps, kept);
    }
}
