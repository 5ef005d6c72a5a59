//! The verdict: a pure function of the history, of what the client counted, and of the ledger.

use std::collections::BTreeMap;

use justonce_testkit::history::OffenceKind::{
    AfterReplay, Disorder, Forgotten, Invented, Surprise, Twice, TwoOutcomes,
};
use justonce_testkit::history::{self, Guarantee, History, OffenceKind};

use crate::seen::Seen;

/// The checks, and how operations ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) checks: Vec<Check>,
    pub(crate) figures: Figures,
}

/// One thing that must be true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) claim: &'static str,
    /// Of how many it was found true, and more that is worth saying.
    pub(crate) detail: String,
    /// The keys of those for which it is not true.
    pub(crate) offenders: Vec<String>,
}

/// How operations ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) operations: u64,
    pub(crate) charges: u64,
    pub(crate) charged_twice: u64,
    pub(crate) acknowledged: u64,
    pub(crate) unknown_charged: u64,
    pub(crate) unknown_not_charged: u64,
    pub(crate) given_up: u64,
}

impl Verdict {
    /// Whether all checks hold.
    pub(crate) fn passed(&self) -> bool {
        self.checks.iter().all(Check::holds)
    }
}

impl Check {
    /// Whether it is true of all.
    pub(crate) fn holds(&self) -> bool {
        self.offenders.is_empty()
    }
}

/// Judges a history, with the ledger's charges by key: no operation may take effect twice, none
/// that was acknowledged may be lost, and each has one outcome.
pub(crate) fn judge(seen: &[Seen], charges: &BTreeMap<String, u64>, history: &History) -> Verdict {
    let offences = history::judge(history, Guarantee::AtMostOnce).offences;
    let committed = |key: &str, kinds: &[OffenceKind]| {
        offences.iter().any(|one| one.operation == key && kinds.contains(&one.kind))
    };
    let is = |seen: &Seen, kind| committed(&seen.key, &[kind]);
    let charged = |seen: &Seen| charges.get(&seen.key).copied().unwrap_or_default();
    let acknowledged = || seen.iter().filter(|seen| seen.is_acknowledged());
    let unknown = || seen.iter().filter(|seen| seen.is_unknown());
    let figures = figures(seen, charges);
    let answers: u64 = seen.iter().map(|seen| seen.counts.acknowledged).sum();
    let unasked = offences.iter().filter(|one| one.kind == OffenceKind::Unasked);
    let checks = vec![
        Check::of("every operation was charged at most once", seen, |seen| !is(seen, Twice)),
        Check::of(
            "every acknowledged operation was charged exactly once",
            acknowledged(),
            |seen| !is(seen, Twice) && charged(seen) > 0,
        ),
        Check::of("every unknown outcome was charged once or never", unknown(), |seen| {
            !is(seen, Twice)
        })
        .saying(format!("{} once, {} never", figures.unknown_charged, figures.unknown_not_charged)),
        Check::of(
            "every replay was equal to the first answer, byte for byte",
            acknowledged(),
            // An answer to something that was never charged is a matter of the second check.
            |seen| !is(seen, TwoOutcomes) && (charged(seen) == 0 || !is(seen, Invented)),
        )
        .saying(format!("{answers} answers")),
        Check::of("every answer was one that a client can expect", seen, |seen| {
            // Of two outcomes one is forgotten too: that is the check before.
            let forgotten = is(seen, Forgotten) && !is(seen, TwoOutcomes);
            let unexpected = committed(&seen.key, &[Surprise, AfterReplay, Disorder]);
            seen.surprises.is_empty() && !forgotten && !unexpected
        }),
        Check {
            claim: "nothing was charged that nobody asked for",
            detail: format!("{} charges", figures.charges),
            offenders: unasked.map(|one| one.operation.clone()).collect(),
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
    use http::{HeaderMap, StatusCode};
    use justonce_testkit::history::Reply;

    use super::*;
    use crate::answer::Answer;
    use crate::exchange::Sent;
    use crate::plan::Payment;

    fn said(body: &'static str) -> Answer {
        Answer::read(StatusCode::CREATED, &HeaderMap::new(), body.as_bytes())
    }

    /// The verdict on one operation that was answered like this and charged so often: by requests
    /// that never got their answers.
    fn verdict(answers: Vec<Answer>, charged: u64) -> Verdict {
        let mut seen = Seen::new(&Payment::new(7, 0));
        let mut history = History::default();
        let first = answers.iter().find_map(|answer| match answer {
            Answer::Acknowledged { answer, .. } => Some(answer.clone()),
            _ => None,
        });
        for _ in 0..charged {
            let asked = history.asked(&seen.key);
            history.effect(&seen.key, first.clone().unwrap_or_default());
            history.replied(asked, Reply::Lost);
        }
        for answer in answers {
            let sent = Sent::Answered(answer);
            let asked = history.asked(&seen.key);
            history.replied(asked, sent.reply());
            seen.note(&sent);
        }
        let charges = BTreeMap::from([(seen.key.clone(), charged)]);
        let charges = charges.into_iter().filter(|(_, charged)| *charged > 0).collect();
        judge(&[seen], &charges, &history)
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
        let mut history = History::default();
        history.effect("stranger", "charged");
        let verdict = judge(&[], &BTreeMap::from([("stranger".to_owned(), 1)]), &history);
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
