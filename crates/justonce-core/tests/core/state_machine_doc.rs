//! The diagram in `docs/state-machine.md` is what the rules do: no edge is missing, none invented.

use std::collections::{BTreeSet, HashSet};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::{
    Action, AfterRetention, BackOff, Change, Checkpoint, Entry, Failure, FailureKind, Fence,
    Fingerprint, OnFailure, OnLapsed, Outcome, Policy, Resolution, Resolve, Resolver, StateName,
    Timestamp, Token, UnknownReason, Why, state_at, transition,
};

use crate::draw::steps::begin;

/// From, to, and the event: the name of a step, or `time`.
type Edge = (&'static str, &'static str, &'static str);

/// The event that is no step: a lease, a retention or a tombstone ends.
const TIME: &str = "time";

/// Moments between which every duration of [`policies`] ends once, in seconds.
const MOMENTS: [u64; 5] = [1000, 1001, 1020, 1200, 1400];

/// No entry is claimed more often than this: more claims lead to no other states.
const MAX_CLAIMS: u64 = 2;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Every combination of rules that a policy can have.
fn policies() -> Vec<Arc<Policy>> {
    let back_off = BackOff { first: seconds(4), max: seconds(8) };
    let mut policies = Vec::new();
    for on_lapsed in [OnLapsed::Rerun, OnLapsed::Resume, OnLapsed::Hold] {
        for on_failure in [OnFailure::Replay, OnFailure::Release, OnFailure::Retry(back_off)] {
            for after in [AfterRetention::New, AfterRetention::Refuse(seconds(200))] {
                for attempts in [None, NonZeroU32::new(1)] {
                    let policy = Policy::builder()
                        .lease(seconds(5))
                        .lease_cap(seconds(15))
                        .retention(seconds(100))
                        .on_lapsed(on_lapsed)
                        .on_failure(on_failure)
                        .after_retention(after)
                        .max_attempts(attempts)
                        .build();
                    policies.push(Arc::new(policy.expect("a valid policy")));
                }
            }
        }
    }
    policies
}

/// Every step that can be taken on an entry.
fn actions(entry: Option<&Entry>, policy: &Arc<Policy>) -> Vec<Action> {
    let mut actions = vec![Action::Sweep, Action::Peek(Fingerprint::UNCHECKED)];
    for token in [Token(1), Token(2)] {
        let call = begin(Arc::clone(policy), token, Fingerprint::UNCHECKED);
        actions.push(Action::Begin(Box::new(call)));
    }
    let current = entry.map_or(Fence::new(1), Entry::fence);
    for fence in [current, current.next()] {
        let outcome = Outcome::empty;
        actions.push(Action::Complete(fence, outcome()));
        actions.push(Action::Release(fence));
        actions.push(Action::Renew(fence));
        actions.extend([Action::Expire(fence), Action::Erase(fence)]);
        actions.push(Action::Abandon(fence, UnknownReason::Reported.into()));
        let point = Checkpoint::new("half", "way").expect("a valid checkpoint");
        actions.push(Action::Checkpoint(fence, point));
        for kind in [FailureKind::Passing, FailureKind::Permanent] {
            let failure = Failure { outcome: outcome(), kind, jitter: 0 };
            actions.push(Action::Fail(fence, failure));
        }
        for resolution in
            [Resolution::Complete(outcome()), Resolution::Fail(outcome()), Resolution::Release]
        {
            let resolve = Resolve {
                resolution,
                by: Resolver::operator("ada"),
                why: Why::new("asked the bank"),
            };
            actions.push(Action::Resolve(fence, Box::new(resolve)));
        }
    }
    actions
}

fn name_at(entry: Option<&Entry>, now: Timestamp) -> StateName {
    entry.map_or(StateName::Absent, |entry| state_at(entry, now))
}

fn stored_name(entry: Option<&Entry>) -> StateName {
    entry.map_or(StateName::Absent, Entry::state_name)
}

/// The edge of a step, if it has one. A step that merely stores what time has done has none, and
/// neither has one that changes nothing.
fn edge(before: Option<&Entry>, action: &Action, now: Timestamp, change: &Change) -> Option<Edge> {
    let after = match change {
        Change::Keep => return None,
        Change::Remove => None,
        Change::Put(entry) => Some(entry),
    };
    let (from, to) = (name_at(before, now), name_at(after, now));
    if from == to && stored_name(before) != stored_name(after) {
        return None;
    }
    (action.name() != "sweep").then(|| (from.as_str(), to.as_str(), action.name()))
}

/// All edges of all entries that can be reached from nothing.
fn edges() -> BTreeSet<Edge> {
    let mut edges = BTreeSet::new();
    for policy in policies() {
        let mut seen = HashSet::new();
        let mut open: Vec<(Option<Entry>, usize)> = vec![(None, 0)];
        while let Some((entry, moment)) = open.pop() {
            let now = Timestamp::from_millis(MOMENTS[moment] * 1000);
            if let Some(later) = MOMENTS.get(moment + 1) {
                let later = Timestamp::from_millis(later * 1000);
                let (from, to) = (name_at(entry.as_ref(), now), name_at(entry.as_ref(), later));
                if from != to {
                    edges.insert((from.as_str(), to.as_str(), TIME));
                }
                push(&mut open, &mut seen, entry.clone(), moment + 1);
            }
            for action in actions(entry.as_ref(), &policy) {
                let decision = transition(entry.as_ref(), &action, now, Fence::NONE);
                edges.extend(edge(entry.as_ref(), &action, now, &decision.change));
                match decision.change {
                    Change::Keep => {}
                    Change::Remove => push(&mut open, &mut seen, None, moment),
                    Change::Put(after) => push(&mut open, &mut seen, Some(after), moment),
                }
            }
        }
    }
    edges
}

fn push(
    open: &mut Vec<(Option<Entry>, usize)>,
    seen: &mut HashSet<(Option<Entry>, usize)>,
    entry: Option<Entry>,
    moment: usize,
) {
    let claims = entry.as_ref().map_or(0, |entry| entry.fence().get());
    if claims <= MAX_CLAIMS && seen.insert((entry.clone(), moment)) {
        open.push((entry, moment));
    }
}

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/state-machine.md");
    std::fs::read_to_string(path).expect("docs/state-machine.md can be read")
}

/// The edges that the diagram draws: `from --> to : event, event`.
fn drawn(document: &str) -> Vec<(String, String, String)> {
    let diagram = document
        .split("```mermaid")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap_or_default();
    let mut edges = Vec::new();
    for line in diagram.lines() {
        let Some((from, rest)) = line.split_once("-->") else {
            continue;
        };
        let (to, events) = rest.split_once(':').unwrap_or((rest, ""));
        for event in events.split(',') {
            let [from, to, event] = [from, to, event].map(|part| part.trim().to_owned());
            edges.push((from, to, event));
        }
    }
    edges
}

#[test]
fn the_diagram_draws_exactly_what_the_rules_do() {
    let document = document();
    assert!(document.contains("stateDiagram-v2"), "docs/state-machine.md has no diagram");
    let listed = drawn(&document);
    let drawn: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(drawn.len(), listed.len(), "an edge is drawn twice");
    let derived: BTreeSet<_> = edges()
        .into_iter()
        .map(|(from, to, event)| (from.to_owned(), to.to_owned(), event.to_owned()))
        .collect();
    let missing: Vec<_> = derived.difference(&drawn).collect();
    let invented: Vec<_> = drawn.difference(&derived).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "missing in the diagram: {missing:#?}\ninvented by the diagram: {invented:#?}"
    );
}

#[test]
fn every_state_and_every_event_is_explained() {
    let document = document();
    for state in StateName::ALL {
        let row = format!("| `{state}` |");
        assert!(document.contains(&row), "the table of states has no row {row}");
    }
    let events: BTreeSet<_> = edges().into_iter().map(|(.., event)| event).collect();
    for event in events.into_iter().chain(["peek", "sweep"]) {
        let row = format!("| `{event}` |");
        assert!(document.contains(&row), "the table of events has no row {row}");
    }
}

/// Time alone never brings anything back, so that whoever looks later never knows less.
#[test]
fn time_only_leads_towards_unknown_and_away_from_outcomes() {
    let by_time: BTreeSet<_> = edges()
        .into_iter()
        .filter(|(.., event)| *event == TIME)
        .map(|(from, to, _)| (from, to))
        .collect();
    let expected = BTreeSet::from([
        ("in_progress", "unknown"),
        ("completed", "absent"),
        ("completed", "tombstone"),
        ("failed", "absent"),
        ("failed", "tombstone"),
        ("released", "absent"),
        ("released", "tombstone"),
        ("tombstone", "absent"),
    ]);
    assert_eq!(by_time, expected);
}

/// A claim is the only way to execute, and only begin gives one.
#[test]
fn nothing_but_a_begin_leads_out_of_nothing() {
    for (from, to, event) in edges() {
        if from == StateName::Absent.as_str() {
            assert_eq!((to, event), (StateName::InProgress.as_str(), "begin"));
        }
        if from == StateName::Unknown.as_str() {
            assert_ne!(event, "begin", "nobody executes what is unknown");
        }
    }
}

#[test]
fn the_enumeration_reaches_every_state() {
    let reached: BTreeSet<_> = edges().into_iter().flat_map(|(from, to, _)| [from, to]).collect();
    let all: BTreeSet<_> = StateName::ALL.iter().map(|state| state.as_str()).collect();
    assert_eq!(reached, all);
}
