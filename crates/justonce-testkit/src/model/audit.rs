//! The auditor: holds every step against the promises. It reads what the store kept before and
//! after and what was answered, and knows nothing of how the rules came to it.

use justonce_core::{
    Action, AfterRetention, Answer, Begin, Change, Claimed, Entry, Existing, Failed, Fence,
    OnFailure, OnLapsed, Record, State, Timestamp,
};

use super::laws::Law;
use super::protocol::{Protocol, after as apply};
use super::world::{Book, Broken, Ended, World, end_of};

/// One step as the auditor sees it.
struct Seen<'a> {
    world: &'a World,
    action: &'a Action,
    answer: &'a Answer,
    before: Option<&'a Entry>,
    after: Option<&'a Entry>,
    now: Timestamp,
}

impl Seen<'_> {
    fn unchanged(&self) -> bool {
        self.before == self.after
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
        answer: &Answer,
        after: Option<&Entry>,
    ) -> Broken {
        let seen =
            Seen { world, action, answer, before: world.entry.as_ref(), after, now: world.now };
        let mut broken = world.book.broken;
        answers(&seen, &mut broken);
        match action {
            Action::Begin(begin) => self.begins(&seen, begin, &mut broken),
            Action::Sweep | Action::Peek(_) => {}
            _ => self.writes(&seen, &mut broken),
        }
        if action.fence().is_none() {
            unasked(&seen, &mut broken);
        }
        self.times(&seen, &mut broken);
        let fresh = world.book.issued.next().next();
        let again = (self.rules)(after, action, world.now, fresh);
        let same = again.change == Change::Keep || apply(None, again.change).as_ref() == after;
        let applied = *answer == Answer::Applied && after.is_some();
        let heard = !applied || again.answer == Answer::Applied;
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
        let free = self.setup.policy.on_lapsed() != OnLapsed::Hold && !self.is_last(record);
        match (&record.state, seen.action) {
            (State::InProgress(claim), Action::Resolve(..)) => {
                let unknown = !free && seen.now >= claim.lease_until;
                broken.note(Law::OnlyUnknown, unknown || seen.unchanged());
            }
            (State::InProgress(_), Action::Renew(_) | Action::Checkpoint(..)) => {
                broken.note(Law::OwnerSettles, !matches!(seen.answer, Answer::Lost(_)));
            }
            (State::Unknown(_), Action::Renew(_) | Action::Checkpoint(..)) => {
                broken.note(Law::Answers, seen.unchanged());
            }
            (State::InProgress(_) | State::Unknown(_), _) => {
                broken.note(Law::OwnerSettles, *seen.answer == Answer::Applied);
            }
            _ => {}
        }
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
            other => other.name() == seen.answer.name(),
        };
        broken.note(Law::Peek, agrees && peek.change == Change::Keep);
    }

    /// A claim that was not there before.
    fn claims(&self, seen: &Seen<'_>, claimed: &Claimed, broken: &mut Broken) {
        let living = seen.world.living();
        let attempt = living.map_or(0, |record| record.attempt) + 1;
        let counted = seen.after.and_then(Entry::record).map(|record| record.attempt);
        let within = self.setup.policy.max_attempts();
        let within = within.is_none_or(|max| attempt <= max.get());
        broken
            .note(Law::Attempts, claimed.attempt == attempt && counted == Some(attempt) && within);
        let resumes = self.setup.policy.on_lapsed() == OnLapsed::Resume;
        let due = living.is_some() && resumes && seen.world.book.saved;
        let due = due.then_some(&self.setup.point);
        broken.note(Law::HandedOver, claimed.checkpoint.as_ref() == due);
        match living.map(|record| &record.state) {
            Some(State::Unknown(_)) => broken.note(Law::UnknownStays, false),
            Some(State::InProgress(_)) => {
                let held = self.setup.policy.on_lapsed() == OnLapsed::Hold;
                broken.note(Law::UnknownStays, !held);
            }
            Some(State::Failed(Failed::Waiting(waiting))) => {
                broken.note(Law::BackOff, seen.now >= waiting.retry_at);
            }
            _ => {}
        }
    }

    /// A begin after the operation has come to an end.
    fn after_the_end(&self, seen: &Seen<'_>, ended: &Ended, broken: &mut Broken) {
        if seen.now < ended.until {
            let replayed = match seen.answer {
                Answer::Existing(Existing::Completed(outcome) | Existing::Failed(outcome)) => {
                    *outcome == ended.outcome
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
            Some(State::Failed(Failed::Waiting(waiting))) if !seen.unchanged() => {
                let pause = waiting.retry_at.since(seen.now);
                let OnFailure::Retry(back_off) = policy.on_failure() else {
                    broken.note(Law::BackOff, false);
                    return;
                };
                broken.note(Law::BackOff, pause >= back_off.first / 2);
            }
            _ => {}
        }
    }

    fn is_last(&self, record: &Record) -> bool {
        let max = self.setup.policy.max_attempts();
        max.is_some_and(|max| record.attempt >= max.get())
    }

    /// Until when late arrivals are refused.
    fn buried_until(&self, ended: &Ended) -> Timestamp {
        match self.setup.policy.after_retention() {
            AfterRetention::New => ended.until,
            AfterRetention::Refuse(life) => ended.until.after(life),
        }
    }

    /// Brings the book up to date with a step.
    pub(super) fn keep_book(
        &self,
        world: &mut World,
        action: &Action,
        answer: &Answer,
        after: Option<&Entry>,
    ) {
        let now = world.now;
        let had_record = world.living().is_some();
        let over = |book: &Book| match &book.ended {
            Some(ended) => now >= self.buried_until(ended),
            None => false,
        };
        let book = &mut world.book;
        if over(book) && matches!(answer, Answer::Claimed(_)) {
            // What was before no longer counts.
            book.anew = true;
            book.ended = None;
            book.effects = 0;
            book.open_run = None;
        }
        match answer {
            Answer::Claimed(claimed) => {
                book.issued = book.issued.max(claimed.fence);
                book.promised = Some((claimed.fence, now.after(claimed.lease)));
                book.saved &= had_record;
            }
            Answer::Renewed(left) => {
                book.promised = action.fence().map(|fence| (fence, now.after(*left)));
            }
            Answer::Applied if matches!(action, Action::Checkpoint(..)) => book.saved = true,
            _ => {}
        }
        let running = match after.and_then(Entry::record) {
            Some(Record { fence, state: State::InProgress(_), .. }) => Some(*fence),
            _ => None,
        };
        let given_up = matches!(action, Action::Abandon(..)) && *answer == Answer::Applied;
        if given_up || book.promised.is_some_and(|(fence, _)| Some(fence) != running) {
            book.promised = None;
        }
        book.saved &= after.is_some();
        if end_of(world.entry.as_ref()).is_none()
            && let Some(outcome) = end_of(after)
        {
            book.ended = Some(Ended {
                outcome: outcome.clone(),
                until: now.after(self.setup.policy.retention()),
            });
        }
    }
}

/// Whether the answer is what happened.
fn answers(seen: &Seen<'_>, broken: &mut Broken) {
    let true_to_it = match (seen.answer, seen.action) {
        (Answer::Lost(_) | Answer::Capped | Answer::Claimable, _) => seen.unchanged(),
        (Answer::Existing(Existing::Unknown(_)), _) => {
            matches!(seen.after_state(), Some(State::Unknown(_)))
        }
        (Answer::Existing(_), _) => seen.unchanged(),
        (Answer::Applied, Action::Complete(_, outcome)) => end_of(seen.after) == Some(outcome),
        (Answer::Applied, Action::Release(_)) => seen.after.is_none(),
        (Answer::Claimed(claimed), Action::Begin(begin)) => {
            let fence = seen.after.map(Entry::fence) == Some(claimed.fence);
            let token = match seen.after_state() {
                Some(State::InProgress(claim)) => claim.token == begin.token,
                _ => false,
            };
            fence && token
        }
        _ => true,
    };
    broken.note(Law::Answers, true_to_it);
}

/// What steps may do that nobody with a claim has asked for.
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
