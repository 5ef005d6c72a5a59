//! What the client saw.

use crate::answer::Answer;
use crate::exchange::Sent;
use crate::plan::Payment;

/// What the client saw of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) number: u32,
    pub(crate) key: String,
    pub(crate) counts: Counts,
    /// What should not have been answered.
    pub(crate) surprises: Vec<String>,
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Requests of which at least a part was sent.
    pub(crate) requests: u64,
    /// Requests that were sent whole.
    pub(crate) whole: u64,
    /// Requests or answers that the client cut.
    pub(crate) cut: u64,
    /// Answers that never came, because the connection broke.
    pub(crate) lost: u64,
    /// Tries without a connection.
    pub(crate) not_sent: u64,
    pub(crate) acknowledged: u64,
    pub(crate) replays: u64,
    pub(crate) in_flight: u64,
    pub(crate) unknown: u64,
    pub(crate) mismatches: u64,
    pub(crate) try_again: u64,
}

impl Seen {
    /// Nothing yet.
    pub(crate) fn new(payment: &Payment) -> Self {
        Self { number: payment.number(), key: payment.key().to_owned(), ..Self::default() }
    }

    /// Takes in what came of one request.
    pub(crate) fn note(&mut self, sent: &Sent) {
        let counts = &mut self.counts;
        counts.requests += u64::from(*sent != Sent::Refused);
        counts.whole += u64::from(!matches!(sent, Sent::Refused | Sent::Cut));
        match sent {
            Sent::Refused => counts.not_sent += 1,
            Sent::Cut | Sent::Left => counts.cut += 1,
            Sent::Lost => counts.lost += 1,
            Sent::Answered(answer) => self.note_answer(answer),
        }
    }

    fn note_answer(&mut self, answer: &Answer) {
        let counts = &mut self.counts;
        match answer {
            Answer::Acknowledged { replayed, .. } => {
                counts.acknowledged += 1;
                counts.replays += u64::from(*replayed);
            }
            Answer::InFlight => counts.in_flight += 1,
            Answer::Unknown => counts.unknown += 1,
            Answer::Mismatch => counts.mismatches += 1,
            Answer::TryAgain => counts.try_again += 1,
            Answer::Surprise(text) => self.surprises.push(text.clone()),
        }
    }

    /// Whether the client stops repeating it.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_acknowledged() || self.is_unknown() || !self.surprises.is_empty()
    }

    /// Whether it was ever acknowledged.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.counts.acknowledged > 0
    }

    /// Whether all that is known is that it is unknown.
    pub(crate) fn is_unknown(&self) -> bool {
        self.counts.acknowledged == 0 && self.counts.unknown > 0
    }
}

impl Counts {
    /// All of them together.
    pub(crate) fn sum(all: &[Seen]) -> Self {
        all.iter().fold(Self::default(), |sum, Seen { counts, .. }| Self {
            requests: sum.requests + counts.requests,
            whole: sum.whole + counts.whole,
            cut: sum.cut + counts.cut,
            lost: sum.lost + counts.lost,
            not_sent: sum.not_sent + counts.not_sent,
            acknowledged: sum.acknowledged + counts.acknowledged,
            replays: sum.replays + counts.replays,
            in_flight: sum.in_flight + counts.in_flight,
            unknown: sum.unknown + counts.unknown,
            mismatches: sum.mismatches + counts.mismatches,
            try_again: sum.try_again + counts.try_again,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_how_far_they_got() {
        let mut seen = Seen::new(&Payment::new(7, 0));
        for sent in [Sent::Refused, Sent::Cut, Sent::Left, Sent::Lost] {
            seen.note(&sent);
        }
        assert!(!seen.is_settled());
        seen.note(&Sent::Answered(Answer::InFlight));
        seen.note(&Sent::Answered(Answer::TryAgain));
        assert!(!seen.is_settled());
        seen.note(&Sent::Answered(Answer::Unknown));
        assert!(seen.is_settled() && seen.is_unknown());
        let counts = Counts::sum(&[seen.clone(), seen]);
        assert_eq!((counts.requests, counts.whole, counts.cut), (12, 10, 4));
        assert_eq!((counts.lost, counts.not_sent, counts.in_flight), (2, 2, 2));
    }
}
