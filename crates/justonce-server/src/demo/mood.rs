//! The whims of the toy API.

use std::ops::RangeInclusive;
use std::time::Duration;

use uuid::Uuid;

use super::dice::Dice;

/// How often it takes its time, in percent, and how long, in milliseconds: long enough for
/// duplicates, hang-ups and the kill to fall into it.
const SLOW_PERCENT: u64 = 30;
const SLOW_MS: RangeInclusive<u64> = 20..=200;
/// How often it refuses before it charges, in percent.
const REFUSES_PERCENT: u64 = 10;
/// How often it charges and breaks the connection instead of answering, in percent.
const BREAKS_PERCENT: u64 = 4;
/// Keeps the chances of moods apart from all others.
const NAME: u64 = 0x6d6f_6f64;

/// What the API will do with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mood {
    /// How long it thinks first.
    pub(super) pause: Duration,
    /// What it does then.
    pub(super) end: End,
}

/// What the API does with a request in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It charges and answers 201.
    Answers,
    /// It answers 503 with `Retry-After`, and has not charged.
    Refuses,
    /// It charges and breaks the connection without an answer.
    Breaks,
}

impl Mood {
    /// At once, and well.
    pub(super) const CALM: Self = Self { pause: Duration::ZERO, end: End::Answers };

    /// The mood in which this key is met when it asks for this time. Keys that the demo did not
    /// make are met calmly.
    pub(super) fn of(seed: u64, key: &str, ask: u64) -> Self {
        let Ok(key) = Uuid::parse_str(key) else { return Self::CALM };
        let (high, low) = key.as_u64_pair();
        let dice = Dice::new(seed, &[NAME, high, low, ask]);
        let pause = if dice.percent(SLOW_PERCENT) { dice.millis(&SLOW_MS) } else { Duration::ZERO };
        let end = match dice.within(&(1..=100)) {
            drawn if drawn <= REFUSES_PERCENT => End::Refuses,
            drawn if drawn <= REFUSES_PERCENT + BREAKS_PERCENT => End::Breaks,
            _ => End::Answers,
        };
        Self { pause, end }
    }

    /// Whether the request charges.
    pub(super) fn charges(self) -> bool {
        self.end != End::Refuses
    }
}

/// How often this many requests with one key would charge if all of them reached the API.
pub(super) fn charges_of(seed: u64, key: &str, requests: u64) -> u64 {
    let charges = (1..=requests).filter(|ask| Mood::of(seed, key, *ask).charges());
    u64::try_from(charges.count()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mood_occurs_and_repeats() {
        let key = Dice::new(7, &[]).uuid().to_string();
        let moods: Vec<Mood> = (1..=1000).map(|ask| Mood::of(7, &key, ask)).collect();
        for end in [End::Answers, End::Refuses, End::Breaks] {
            assert!(moods.iter().any(|mood| mood.end == end), "{end:?}");
        }
        assert!(moods.iter().any(|mood| !mood.pause.is_zero()));
        assert_eq!(moods, (1..=1000).map(|ask| Mood::of(7, &key, ask)).collect::<Vec<_>>());
        let charging = moods.iter().filter(|mood| mood.charges()).count();
        assert_eq!(charges_of(7, &key, 1000), charging as u64);
    }

    #[test]
    fn keys_typed_by_a_human_are_met_calmly() {
        assert!((1..=100).all(|ask| Mood::of(7, "my-first-payment", ask) == Mood::CALM));
    }
}
