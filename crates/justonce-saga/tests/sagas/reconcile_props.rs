//! The pure part of reconciliation, against words that say it in another way.

use std::collections::HashSet;
use std::time::Duration;

use justonce_core::{Fence, RecordId, StateName};
use justonce_saga::{About, BookedEffect, Disagreement, Finding, ObservedRecord, Rules, compare};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

const RULES: Rules = Rules { grace: Duration::from_secs(10), remembered: Duration::from_secs(100) };

fn about(number: u8) -> About {
    About::record(RecordId::from_bytes([number; 32]))
}

/// Some of eight operations have a record.
fn records() -> impl Strategy<Value = Vec<ObservedRecord>> {
    let states = vec(select(StateName::ALL.to_vec()), 8);
    (subsequence((0..8).collect::<Vec<u8>>(), 0..=8), states).prop_map(|(numbers, states)| {
        let seen = |(number, state): (u8, StateName)| ObservedRecord {
            about: about(number),
            state,
            fence: Fence::new(u64::from(number) + 1),
        };
        numbers.into_iter().zip(states).map(seen).collect()
    })
}

/// Effects of ten operations, around both limits of age.
fn effects() -> impl Strategy<Value = Vec<BookedEffect>> {
    let age = select(vec![0, 9, 10, 11, 99, 100, 101]);
    let effects = vec((0..10_u8, age), 0..24);
    effects.prop_map(|effects| {
        let effect = |(number, (operation, age)): (usize, (u8, u64))| BookedEffect {
            about: about(operation),
            name: format!("receipt {number:02}"),
            age: Duration::from_secs(age),
        };
        effects.into_iter().enumerate().map(effect).collect()
    })
}

/// What must be found of one operation.
fn expected(state: Option<StateName>, effects: &[&BookedEffect]) -> Option<Disagreement> {
    let old = effects.iter().filter(|effect| effect.age.as_secs() >= 10);
    let Some(state) = state else {
        let judged = old.filter(|effect| effect.age.as_secs() < 100).count();
        return (judged > 0).then_some(Disagreement::Orphan);
    };
    let old = old.count();
    match state {
        StateName::Absent if old > 0 => Some(Disagreement::Orphan),
        StateName::Absent => None,
        _ if old > 1 => Some(Disagreement::Double),
        StateName::Completed if effects.is_empty() => Some(Disagreement::Missing),
        StateName::Unknown if effects.is_empty() => Some(Disagreement::UnknownUndone),
        StateName::Unknown if old == 1 => Some(Disagreement::UnknownDone),
        StateName::Failed | StateName::Released if old == 1 => Some(Disagreement::Orphan),
        StateName::InProgress if old == 1 => Some(Disagreement::Unfinished),
        _ => None,
    }
}

fn sorted(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|finding| finding.about.id);
    findings
}

proptest! {
    #[test]
    fn all_that_disagrees_is_found_once_and_nothing_else(
        records in records(),
        effects in effects(),
    ) {
        let found = compare(&records, &effects, &RULES);
        let ids: HashSet<RecordId> = found.iter().map(|finding| finding.about.id).collect();
        prop_assert_eq!(ids.len(), found.len(), "each operation once");
        for number in 0..10 {
            let id = about(number).id;
            let state = records.iter().find(|seen| seen.about.id == id).map(|seen| seen.state);
            let of: Vec<&BookedEffect> = effects.iter().filter(|one| one.about.id == id).collect();
            let finding = found.iter().find(|finding| finding.about.id == id);
            prop_assert_eq!(finding.map(|finding| finding.what), expected(state, &of));
            if let Some(finding) = finding {
                prop_assert!(finding.effects.iter().all(|effect| effect.age >= RULES.grace));
                let seen = finding.record.map(|(state, _)| state);
                prop_assert_eq!(seen, state, "it says what it has seen");
            }
        }
    }

    #[test]
    fn neither_order_nor_pages_nor_repetition_matter(
        records in records(),
        effects in effects(),
        page in 1..9_usize,
    ) {
        let all = sorted(compare(&records, &effects, &RULES));
        let known: HashSet<RecordId> = records.iter().map(|seen| seen.about.id).collect();
        let (of_records, strange): (Vec<BookedEffect>, Vec<BookedEffect>) =
            effects.iter().cloned().partition(|effect| known.contains(&effect.about.id));
        let mut paged = compare(&[], &strange, &RULES);
        for page in records.chunks(page) {
            let ids: HashSet<RecordId> = page.iter().map(|seen| seen.about.id).collect();
            // In another order, and each of them listed twice.
            let of = of_records.iter().rev().filter(|effect| ids.contains(&effect.about.id));
            let of: Vec<BookedEffect> = of.clone().chain(of).cloned().collect();
            paged.extend(compare(page, &of, &RULES));
        }
        prop_assert_eq!(sorted(paged), all);
    }
}
