//! The auditor's book: what it remembers of the steps before.

use justonce_core::{
    Action, AfterRetention, Answer, Entry, FailureKind, OnFailure, OnLapsed, Record, Resolution,
    State, Timestamp,
};

use super::model::Protocol;
use crate::world::{Book, Ended, Point, World, end_of};

impl Protocol {
    /// Brings the book up to date with a step.
    pub(super) fn keep_book(
        &self,
        world: &mut World,
        action: &Action,
        answer: &Answer,
        after: Option<&Entry>,
    ) {
        let now = world.now;
        let lived = world.living().is_some();
        let changed = world.entry.as_ref() != after;
        let back = *answer == Answer::Applied && changed && self.gives_back(action);
        let due = self.due(&world.book);
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
                if claimed.fence > book.issued {
                    book.attempts = if lived { book.attempts + 1 } else { 1 };
                    book.point = if lived { due } else { Point::Start };
                }
                book.issued = book.issued.max(claimed.fence);
                book.promised = Some((claimed.fence, now.after(claimed.lease)));
            }
            Answer::Renewed(left) => {
                book.promised = action.fence().map(|fence| (fence, now.after(*left)));
            }
            _ => {}
        }
        if let (Answer::Applied, Action::Checkpoint(_, saved)) = (answer, action) {
            book.point = book.point.max(self.setup.point(Some(saved)));
        }
        if back {
            book.attempts = book.attempts.saturating_sub(1);
        }
        let nothing = back && matches!(action, Action::Resolve(..));
        if nothing || after.is_none() || end_of(after).is_some() {
            book.point = Point::Start;
        }
        let running = match after.and_then(Entry::record) {
            Some(Record { fence, state: State::InProgress(_), .. }) => Some(*fence),
            _ => None,
        };
        let given_up = matches!(action, Action::Abandon(..))
            && matches!(answer, Answer::Applied | Answer::Held(_));
        if given_up || book.promised.is_some_and(|(fence, _)| Some(fence) != running) {
            book.promised = None;
        }
        if end_of(world.entry.as_ref()).is_none()
            && let Some(outcome) = end_of(after)
        {
            book.ended = Some(Ended {
                outcome: outcome.clone(),
                until: now.after(self.setup.policy.retention()),
            });
        }
    }

    /// Whether a step gives a claim back, so that the attempt does not count.
    pub(super) fn gives_back(&self, action: &Action) -> bool {
        match action {
            Action::Release(_) => true,
            Action::Fail(_, failure) => {
                let release = self.setup.policy.on_failure() == OnFailure::Release;
                release && failure.kind == FailureKind::Passing
            }
            Action::Resolve(_, resolve) => resolve.resolution == Resolution::Release,
            _ => false,
        }
    }

    /// The checkpoint that a takeover must receive.
    pub(super) fn due(&self, book: &Book) -> Point {
        match self.setup.policy.on_lapsed() {
            OnLapsed::Resume => book.point,
            OnLapsed::Hold | OnLapsed::Rerun => Point::Start,
        }
    }

    /// Until when late arrivals are refused.
    pub(super) fn buried_until(&self, ended: &Ended) -> Timestamp {
        match self.setup.policy.after_retention() {
            AfterRetention::New => ended.until,
            AfterRetention::Refuse(life) => ended.until.after(life),
        }
    }
}
