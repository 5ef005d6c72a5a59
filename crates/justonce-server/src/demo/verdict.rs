//! The judgement: what the client saw, against what the ledger says. Pure, so that it can be shown
//! to notice.

use std::collections::{BTreeMap, BTreeSet};

use super::seen::Seen;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) checks: Vec<Check>,
    pub(super) figures: Figures,
}

/// One thing that must be true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) claim: &'static str,
    /// Of how many it was found true, and more that is worth saying.
    pub(super) detail: String,
    /// The keys of those for which it is not true.
    pub(super) offenders: Vec<String>,
}

/// How operations ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) operations: u64,
    pub(super) charges: u64,
    pub(super) charged_twice: u64,
    pub(super) acknowledged: u64,
    pub(super) unknown_charged: u64,
    pub(super) unknown_not_charged: u64,
    pub(super) given_up: u64,
}

impl Verdict {
    /// Whether all is well.
    pub(super) fn passed(&self) -> bool {
        self.checks.iter().all(Check::holds)
    }
}

impl Check {
    /// Whether it is true of all.
    pub(super) fn holds(&self) -> bool {
        self.offenders.is_empty()
    }
}

/// Judges what was seen by what was charged under each key.
pub(super) fn judge(seen: &[Seen], charges: &BTreeMap<String, u64>) -> Verdict {
    let figures = figures(seen, charges);
    let charged = |seen: &Seen| charges.get(&seen.key).copied().unwrap_or_default();
    let acknowledged = || seen.iter().filter(|seen| seen.is_acknowledged());
    let unknown = || seen.iter().filter(|seen| seen.is_unknown());
    let known: BTreeSet<&str> = seen.iter().map(|seen| seen.key.as_str()).collect();
    let strangers = charges.keys().filter(|key| !known.contains(key.as_str())).cloned();
    let checks = vec![
        Check::of("every operation was charged at most once", seen, |seen| charged(seen) <= 1),
        Check::of(
            "every acknowledged operation was charged exactly once",
            acknowledged(),
            |seen| charged(seen) == 1,
        ),
        Check::of("every unknown outcome was charged once or never", unknown(), |seen| {
            charged(seen) <= 1
        })
        .saying(format!("{} once, {} never", figures.unknown_charged, figures.unknown_not_charged)),
        Check::of(
            "every replay was equal to the first answer, byte for byte",
            acknowledged(),
            all_equal,
        )
        .saying(format!(
            "{} answers",
            acknowledged().map(|seen| seen.replies.len()).sum::<usize>()
        )),
        Check::of("every answer was one that a client can expect", seen, |seen| {
            seen.surprises.is_empty()
        }),
        Check {
            claim: "nothing was charged that nobody asked for",
            detail: format!("{} charges", figures.charges),
            offenders: strangers.collect(),
        },
    ];
    Verdict { checks, figures }
}

impl Check {
    fn of<'a>(
        claim: &'static str,
        all: impl IntoIterator<Item = &'a Seen>,
        holds: impl Fn(&Seen) -> bool,
    ) -> Self {
        let (mut count, mut offenders) = (0_usize, Vec::new());
        for seen in all {
            count += 1;
            if !holds(seen) {
                offenders.push(seen.key.clone());
            }
        }
        let detail = format!("{} of {count}", count - offenders.len());
        Self { claim, detail, offenders }
    }

    fn saying(self, detail: String) -> Self {
        Self { detail, ..self }
    }
}

fn all_equal(seen: &Seen) -> bool {
    seen.replies.iter().all(|reply| Some(reply) == seen.replies.first())
}

fn figures(seen: &[Seen], charges: &BTreeMap<String, u64>) -> Figures {
    let mut figures = Figures { charges: charges.values().sum(), ..Figures::default() };
    figures.charged_twice = charges.values().map(|charges| u64::from(*charges > 1)).sum();
    for seen in seen {
        figures.operations += 1;
        let slot = match (seen.is_acknowledged(), seen.is_unknown()) {
            (true, _) => &mut figures.acknowledged,
            (false, true) if charges.contains_key(&seen.key) => &mut figures.unknown_charged,
            (false, true) => &mut figures.unknown_not_charged,
            (false, false) => &mut figures.given_up,
        };
        *slot += 1;
    }
    figures
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    use super::super::answer::Answer;
    use super::super::exchange::Sent;
    use super::super::plan::Payment;
    use super::*;

    fn said(body: &'static str) -> Answer {
        let body = Bytes::from_static(body.as_bytes());
        Answer::read(StatusCode::CREATED, &HeaderMap::new(), body)
    }

    /// The verdict on one operation that was answered like this and charged so often.
    fn verdict(answers: Vec<Answer>, charged: u64) -> Verdict {
        let mut seen = Seen::new(&Payment::new(7, 0));
        answers.into_iter().for_each(|answer| seen.note(Sent::Answered(answer)));
        let charges = BTreeMap::from([(seen.key.clone(), charged)]);
        judge(&[seen], &charges.into_iter().filter(|(_, charged)| *charged > 0).collect())
    }

    #[test]
    fn the_verdict_notices_every_offence() {
        let surprise = || Answer::Surprise("500".to_owned());
        let cases = [
            ("acknowledged, charged once", vec![said("a")], 1, 0),
            ("acknowledged and replayed", vec![said("a"), said("a")], 1, 0),
            ("unknown, charged", vec![Answer::Unknown], 1, 0),
            ("unknown, not charged", vec![Answer::Unknown], 0, 0),
            ("unknown, and after all acknowledged", vec![Answer::Unknown, said("a")], 1, 0),
            ("given up, not charged", vec![Answer::TryAgain], 0, 0),
            ("given up, charged", vec![Answer::InFlight], 1, 0),
            ("acknowledged, never charged", vec![said("a")], 0, 1),
            ("acknowledged, charged twice", vec![said("a")], 2, 2),
            ("unknown, charged twice", vec![Answer::Unknown], 2, 2),
            ("given up, charged twice", vec![Answer::TryAgain], 2, 1),
            ("the replay differs", vec![said("a"), said("b")], 1, 1),
            ("surprised", vec![said("a"), surprise()], 1, 1),
        ];
        for (name, answers, charged, failing) in cases {
            let verdict = verdict(answers, charged);
            let failed = verdict.checks.iter().filter(|check| !check.holds()).count();
            assert_eq!(failed, failing, "{name}: {verdict:?}");
            assert_eq!(verdict.passed(), failing == 0, "{name}");
        }
    }

    #[test]
    fn a_charge_that_nobody_asked_for_is_noticed() {
        let verdict = judge(&[], &BTreeMap::from([("stranger".to_owned(), 1)]));
        assert!(!verdict.passed());
        let offenders: Vec<_> = verdict.checks.iter().flat_map(|check| &check.offenders).collect();
        assert_eq!(offenders, ["stranger"]);
    }

    #[test]
    fn every_operation_ends_in_one_way() {
        let once = |answers, charged| verdict(answers, charged).figures;
        assert_eq!(once(vec![Answer::Unknown, said("a")], 1).acknowledged, 1);
        assert_eq!(once(vec![Answer::Unknown], 1).unknown_charged, 1);
        assert_eq!(once(vec![Answer::Unknown], 0).unknown_not_charged, 1);
        assert_eq!(once(vec![Answer::TryAgain], 0).given_up, 1);
        assert_eq!(once(vec![said("a")], 2).charged_twice, 1);
    }
}
