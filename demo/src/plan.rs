//! The payments, and how their requests are sent.

use std::ops::RangeInclusive;

use bytes::Bytes;
use serde_json::json;

use crate::chance::Chance;
use crate::exchange::{Disconnect, PaymentRequest};

/// The payees.
const NAMES: [&str; 6] = ["alice", "bob", "carol", "dave", "erin", "frank"];
/// The amounts, in cents.
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
/// How often a duplicate prefers waiting to a refusal, in percent.
const PREFER_WAIT_PERCENT: u64 = 50;
/// After so many tries nothing goes wrong on purpose any more, so that every operation ends.
const LOSSY_TRIES: u32 = 6;
/// Separates these random numbers from all others.
const NAME: u64 = 0x7061_7920;

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Payment {
    number: u32,
    key: String,
    amount: u64,
    to: &'static str,
}

impl Payment {
    /// The payment with this number.
    pub(crate) fn new(seed: u64, number: u32) -> Self {
        let chance = Chance::new(seed, &[NAME, number.into()]);
        let key = chance.uuid().to_string();
        let amount = chance.within(&AMOUNT);
        let drawn = usize::try_from(chance.within(&(0..=u64::MAX - 1))).unwrap_or_default();
        let to = NAMES.iter().cycle().nth(drawn % NAMES.len()).copied().unwrap_or("alice");
        Self { number, key, amount, to }
    }

    /// Its number.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// The same for all its tries.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// What is sent.
    pub(crate) fn request(&self, chance: &Chance) -> PaymentRequest {
        self.request_for(self.amount, chance)
    }

    /// What a confused client sends: the same key for another amount.
    pub(crate) fn confused_request(&self, chance: &Chance) -> PaymentRequest {
        self.request_for(self.amount + 1, chance)
    }

    fn request_for(&self, amount: u64, chance: &Chance) -> PaymentRequest {
        let body = json!({ "amount": amount, "to": self.to });
        PaymentRequest {
            key: self.key.clone(),
            body: Bytes::from(body.to_string()),
            prefers_to_wait: chance.percent(PREFER_WAIT_PERCENT),
        }
    }
}

/// How the copies of one try are sent.
pub(crate) fn disconnects(chance: &Chance, tries_before: u32) -> Vec<Disconnect> {
    if tries_before >= LOSSY_TRIES {
        return vec![Disconnect::Never];
    }
    let copies = if chance.percent(COPIES_PERCENT) { chance.within(&COPIES) } else { 1 };
    (0..copies).map(|_| disconnect(chance)).collect()
}

fn disconnect(chance: &Chance) -> Disconnect {
    const HANG_UP: u64 = CUT_REQUEST_PERCENT + HANG_UP_PERCENT;
    const CUT_ANSWER: u64 = HANG_UP + CUT_ANSWER_PERCENT;
    match chance.within(&(1..=100)) {
        drawn if drawn <= CUT_REQUEST_PERCENT => Disconnect::InRequest,
        drawn if drawn <= HANG_UP => Disconnect::After(chance.millis(&HANG_UP_MS)),
        drawn if drawn <= CUT_ANSWER => Disconnect::InAnswer,
        _ => Disconnect::Never,
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
        let chance = Chance::new(7, &[]);
        assert_eq!(payment.request(&chance).body, payment.request(&chance).body);
        assert_ne!(payment.request(&chance).body, payment.confused_request(&chance).body);
        assert_eq!(payment.request(&chance).key, payment.confused_request(&chance).key);
    }

    #[test]
    fn everything_goes_wrong_at_first_and_nothing_in_the_end() {
        let chance = Chance::new(7, &[]);
        let drawn: Vec<_> = (0..1000).flat_map(|_| disconnects(&chance, 0)).collect();
        let has = |wanted: fn(&Disconnect) -> bool| drawn.iter().any(wanted);
        assert!(has(|disconnect| matches!(disconnect, Disconnect::InRequest)));
        assert!(has(|disconnect| matches!(disconnect, Disconnect::After(_))));
        assert!(has(|disconnect| matches!(disconnect, Disconnect::InAnswer)));
        assert!(has(|disconnect| matches!(disconnect, Disconnect::Never)));
        assert!(drawn.len() > 1000);
        assert_eq!(disconnects(&chance, LOSSY_TRIES), [Disconnect::Never]);
    }
}
