//! Whose turn it is: a back-off for each operation that was asked about. Pure; time and jitter are
//! handed in.

use std::collections::{HashMap, HashSet};

use crate::claim::Fence;
use crate::clock::Timestamp;
use crate::policy::BackOff;
use crate::record_id::RecordId;

/// The most operations whose back-off is remembered. Beyond it operations are asked about in every
/// round, within the limits of a round.
const MAX_REMEMBERED: usize = 100_000;
/// The most operations that callers wait for.
const MAX_PRIORITIZED: usize = 1000;

/// When each operation may be asked about.
#[derive(Debug)]
pub(super) struct Pace {
    back_off: BackOff,
    turns: HashMap<RecordId, Turn>,
    prioritized: HashSet<RecordId>,
    round: u64,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    fence: Fence,
    tries: u32,
    /// When its back-off is over.
    due: Timestamp,
    /// When it may be asked about if a caller waits for it.
    soonest: Timestamp,
    /// The last round that has seen it.
    round: u64,
}

impl Pace {
    pub(super) fn new(back_off: BackOff) -> Self {
        Self { back_off, turns: HashMap::new(), prioritized: HashSet::new(), round: 0 }
    }

    /// A caller waits for this one.
    pub(super) fn prioritize(&mut self, id: RecordId) -> bool {
        self.prioritized.len() < MAX_PRIORITIZED && self.prioritized.insert(id)
    }

    /// Whether it is its turn. A new claim starts anew.
    pub(super) fn is_due(&mut self, id: RecordId, fence: Fence, now: Timestamp) -> bool {
        let prioritized = self.prioritized.remove(&id);
        let round = self.round;
        let Some(turn) = self.turns.get_mut(&id) else { return true };
        turn.round = round;
        turn.fence != fence || now >= if prioritized { turn.soonest } else { turn.due }
    }

    /// It was asked about, and the answer was unclear.
    pub(super) fn unclear(&mut self, id: RecordId, fence: Fence, now: Timestamp, jitter: u32) {
        let before = self.turns.get(&id).filter(|turn| turn.fence == fence);
        let tries = before.map_or(0, |turn| turn.tries).saturating_add(1);
        if before.is_none() && self.turns.len() >= MAX_REMEMBERED {
            return;
        }
        let due = self.back_off.until(now, tries, jitter);
        let soonest = self.back_off.until(now, 1, jitter).min(due);
        self.turns.insert(id, Turn { fence, tries, due, soonest, round: self.round });
    }

    /// It is resolved.
    pub(super) fn forget(&mut self, id: RecordId) {
        self.turns.remove(&id);
    }

    /// All records were looked at: what was not among them is no longer unknown.
    pub(super) fn round_over(&mut self) {
        let round = self.round;
        self.turns.retain(|_, turn| turn.round == round);
        self.prioritized.clear();
        self.round += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ID: RecordId = RecordId::from_bytes([7; 32]);
    const FENCE: Fence = Fence::new(3);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn pace() -> Pace {
        Pace::new(BackOff { first: Duration::from_secs(10), max: Duration::from_secs(80) })
    }

    #[test]
    fn each_unclear_answer_doubles_the_pause() {
        let mut pace = pace();
        assert!(pace.is_due(ID, FENCE, at(0)));
        let mut now = 0;
        for pause in [10, 20, 40, 80, 80] {
            pace.unclear(ID, FENCE, at(now), u32::MAX);
            assert!(!pace.is_due(ID, FENCE, at(now + pause - 1)), "{pause}");
            assert!(pace.is_due(ID, FENCE, at(now + pause)), "{pause}");
            now += pause;
        }
    }

    #[test]
    fn a_new_claim_starts_anew() {
        let mut pace = pace();
        pace.unclear(ID, FENCE, at(0), u32::MAX);
        assert!(pace.is_due(ID, FENCE.next(), at(1)));
        pace.unclear(ID, FENCE.next(), at(1), u32::MAX);
        assert!(pace.is_due(ID, FENCE.next(), at(11)), "the first pause, not the second");
    }

    #[test]
    fn who_waits_is_served_sooner_but_not_at_once() {
        let mut pace = pace();
        for _ in 0..5 {
            pace.unclear(ID, FENCE, at(0), u32::MAX);
        }
        assert!(!pace.is_due(ID, FENCE, at(11)));
        assert!(pace.prioritize(ID));
        assert!(!pace.prioritize(ID), "once is enough");
        assert!(pace.is_due(ID, FENCE, at(11)));
        assert!(pace.prioritize(ID));
        assert!(!pace.is_due(ID, FENCE, at(9)), "a client that asks in a loop asks nobody else");
    }

    #[test]
    fn what_is_no_longer_there_is_forgotten() {
        let mut pace = pace();
        pace.unclear(ID, FENCE, at(0), u32::MAX);
        pace.round_over();
        assert!(!pace.is_due(ID, FENCE, at(1)));
        pace.round_over();
        assert_eq!(pace.turns.len(), 1);
        pace.round_over();
        assert_eq!(pace.turns.len(), 0, "one round without it");
    }
}
