//! What the toy API does with a request, faults included.

use std::ops::RangeInclusive;
use std::time::Duration;

use uuid::Uuid;

use crate::chance::Chance;

/// How often it takes its time, in percent, and how long, in milliseconds: long enough for
/// duplicates, hang-ups and the kill to fall into it.
const SLOW_PERCENT: u64 = 30;
const SLOW_MS: RangeInclusive<u64> = 20..=200;
/// How often it refuses before it charges, in percent.
const REFUSES_PERCENT: u64 = 10;
/// How often it charges and breaks the connection instead of answering, in percent.
const BREAKS_PERCENT: u64 = 4;
/// Separates these random numbers from all others.
const NAME: u64 = 0x6d6f_6f64;

/// What the API will do with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behaviour {
    /// How long it thinks first.
    pub(crate) pause: Duration,
    /// What it does then.
    pub(crate) end: End,
}

/// What the API does with a request in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It charges and answers 201.
    Answers,
    /// It answers 503 with `Retry-After`, and has not charged.
    Refuses,
    /// It charges and breaks the connection without an answer.
    Breaks,
}

impl Behaviour {
    /// An answer at once.
    pub(crate) const NORMAL: Self = Self { pause: Duration::ZERO, end: End::Answers };

    /// The behaviour for the request number `ask` with this key. Keys that the demo did not make
    /// get no faults.
    pub(crate) fn of(seed: u64, key: &str, ask: u64) -> Self {
        let Ok(key) = Uuid::parse_str(key) else { return Self::NORMAL };
        let (high, low) = key.as_u64_pair();
        let chance = Chance::new(seed, &[NAME, high, low, ask]);
        let pause =
            if chance.percent(SLOW_PERCENT) { chance.millis(&SLOW_MS) } else { Duration::ZERO };
        let end = match chance.within(&(1..=100)) {
            drawn if drawn <= REFUSES_PERCENT => End::Refuses,
            drawn if drawn <= REFUSES_PERCENT + BREAKS_PERCENT => End::Breaks,
            _ => End::Answers,
        };
        Self { pause, end }
    }

    /// Whether the request charges.
    pub(crate) fn charges(self) -> bool {
        self.end != End::Refuses
    }
}

/// How often this many requests with one key would charge if all of them reached the API.
pub(crate) fn charges_of(seed: u64, key: &str, requests: u64) -> u64 {
    let charges = (1..=requests).filter(|ask| Behaviour::of(seed, key, *ask).charges());
    u64::try_from(charges.count()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mood_occurs_and_repeats() {
        let key = Chance::new(7, &[]).uuid().to_string();
        let drawn: Vec<Behaviour> = (1..=1000).map(|ask| Behaviour::of(7, &key, ask)).collect();
        for end in [End::Answers, End::Refuses, End::Breaks] {
            assert!(drawn.iter().any(|behaviour| behaviour.end == end), "{end:?}");
        }
        assert!(drawn.iter().any(|behaviour| !behaviour.pause.is_zero()));
        assert_eq!(drawn, (1..=1000).map(|ask| Behaviour::of(7, &key, ask)).collect::<Vec<_>>());
        let charging = drawn.iter().filter(|behaviour| behaviour.charges()).count();
        assert_eq!(charges_of(7, &key, 1000), charging as u64);
    }

    #[test]
    fn keys_typed_by_a_human_meet_no_faults() {
        assert!(
            (1..=100).all(|ask| Behaviour::of(7, "my-first-payment", ask) == Behaviour::NORMAL)
        );
    }
}
