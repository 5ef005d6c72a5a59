//! What the client wants, and what goes wrong on the way.

use std::ops::RangeInclusive;

use bytes::Bytes;
use serde_json::json;

use super::dice::Dice;
use super::exchange::{Manner, PaymentRequest};

/// Whom it pays.
const NAMES: [&str; 6] = ["alice", "bob", "carol", "dave", "erin", "frank"];
/// What it pays, in cents.
const AMOUNT: RangeInclusive<u64> = 100..=99_999;
/// How often a try is sent in several copies at once, in percent, and how many copies.
const COPIES_PERCENT: u64 = 25;
const COPIES: RangeInclusive<u64> = 2..=4;
/// How often the client hangs up in the middle of its own request, in percent.
const CUT_REQUEST_PERCENT: u64 = 6;
/// How often it hangs up after sending, in percent, and how soon, in milliseconds.
const HANG_UP_PERCENT: u64 = 12;
const HANG_UP_MS: RangeInclusive<u64> = 2..=60;
/// How often it hangs up when the answer has begun to arrive, in percent.
const CUT_ANSWER_PERCENT: u64 = 10;
/// How often it asks the gateway to keep it waiting rather than refuse a duplicate, in percent.
const PREFER_WAIT_PERCENT: u64 = 50;
/// After so many tries nothing is made to go wrong any more, so that every operation ends.
const LOSSY_TRIES: u32 = 6;
/// Keeps the chances of payments apart from all others.
const NAME: u64 = 0x7061_7920;

/// One operation.
#[derive(Clone, Debug)]
pub(super) struct Payment {
    number: u32,
    key: String,
    amount: u64,
    to: &'static str,
}

impl Payment {
    /// The payment with this number.
    pub(super) fn new(seed: u64, number: u32) -> Self {
        let dice = Dice::new(seed, &[NAME, number.into()]);
        let key = dice.uuid().to_string();
        let amount = dice.within(&AMOUNT);
        let drawn = usize::try_from(dice.within(&(0..=u64::MAX - 1))).unwrap_or_default();
        let to = NAMES.iter().cycle().nth(drawn % NAMES.len()).copied().unwrap_or("alice");
        Self { number, key, amount, to }
    }

    /// Its number.
    pub(super) const fn number(&self) -> u32 {
        self.number
    }

    /// The same for all its tries.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// What is sent.
    pub(super) fn request(&self, dice: &Dice) -> PaymentRequest {
        self.request_for(self.amount, dice)
    }

    /// What a confused client sends: the same key for another amount.
    pub(super) fn confused_request(&self, dice: &Dice) -> PaymentRequest {
        self.request_for(self.amount + 1, dice)
    }

    fn request_for(&self, amount: u64, dice: &Dice) -> PaymentRequest {
        let body = json!({ "amount": amount, "to": self.to });
        PaymentRequest {
            key: self.key.clone(),
            body: Bytes::from(body.to_string()),
            prefers_to_wait: dice.percent(PREFER_WAIT_PERCENT),
        }
    }
}

/// How the copies of one try are sent.
pub(super) fn manners(dice: &Dice, tries_before: u32) -> Vec<Manner> {
    if tries_before >= LOSSY_TRIES {
        return vec![Manner::Patient];
    }
    let copies = if dice.percent(COPIES_PERCENT) { dice.within(&COPIES) } else { 1 };
    (0..copies).map(|_| manner(dice)).collect()
}

fn manner(dice: &Dice) -> Manner {
    const HANG_UP: u64 = CUT_REQUEST_PERCENT + HANG_UP_PERCENT;
    const CUT_ANSWER: u64 = HANG_UP + CUT_ANSWER_PERCENT;
    match dice.within(&(1..=100)) {
        drawn if drawn <= CUT_REQUEST_PERCENT => Manner::CutRequest,
        drawn if drawn <= HANG_UP => Manner::HangUpAfter(dice.millis(&HANG_UP_MS)),
        drawn if drawn <= CUT_ANSWER => Manner::CutAnswer,
        _ => Manner::Patient,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn payments_repeat_with_their_seed_and_have_a_key_each() {
        let keys = |seed| (0..1000).map(move |number| Payment::new(seed, number).key);
        assert_eq!(keys(7).collect::<BTreeSet<_>>().len(), 1000);
        assert!(keys(7).eq(keys(7)));
        assert!(keys(7).ne(keys(8)));
    }

    #[test]
    fn retries_are_equal_and_the_confused_one_is_not() {
        let payment = Payment::new(7, 1);
        let dice = Dice::new(7, &[]);
        assert_eq!(payment.request(&dice).body, payment.request(&dice).body);
        assert_ne!(payment.request(&dice).body, payment.confused_request(&dice).body);
        assert_eq!(payment.request(&dice).key, payment.confused_request(&dice).key);
    }

    #[test]
    fn everything_goes_wrong_at_first_and_nothing_in_the_end() {
        let dice = Dice::new(7, &[]);
        let drawn: Vec<_> = (0..1000).flat_map(|_| manners(&dice, 0)).collect();
        let has = |wanted: fn(&Manner) -> bool| drawn.iter().any(wanted);
        assert!(has(|manner| matches!(manner, Manner::CutRequest)));
        assert!(has(|manner| matches!(manner, Manner::HangUpAfter(_))));
        assert!(has(|manner| matches!(manner, Manner::CutAnswer)));
        assert!(has(|manner| matches!(manner, Manner::Patient)));
        assert!(drawn.len() > 1000);
        assert_eq!(manners(&dice, LOSSY_TRIES), [Manner::Patient]);
    }
}
