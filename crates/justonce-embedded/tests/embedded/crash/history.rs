//! Everything the killed processes said, and what must follow from it.

use std::collections::{BTreeMap, BTreeSet};

use justonce_core::store::Stored;
use justonce_core::{Entry, Failed, OnLapsed, State};

use super::worker::{outcome, promise_of};

/// What was said, over all processes.
#[derive(Debug, Default)]
pub(crate) struct History {
    keys: BTreeMap<String, KeyHistory>,
    fences: BTreeSet<u64>,
    summary: Summary,
}

/// How much was said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) claims: u64,
    pub(crate) completed: u64,
    pub(crate) cut_short: u64,
}

#[derive(Debug, Default)]
struct KeyHistory {
    /// The last claim that was acknowledged, and what its owner said it would try.
    claim: Option<u64>,
    trying: Trying,
    /// The last claim whose checkpoint was acknowledged.
    saved: Option<u64>,
    /// The claim whose outcome was acknowledged.
    completed: Option<u64>,
    executions: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trying {
    #[default]
    Nothing,
    /// It executed, and tries to complete.
    Complete,
    Release,
    Fail,
}

impl History {
    pub(crate) fn summary(&self) -> Summary {
        self.summary
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        self.keys.keys()
    }

    /// Takes in one line of a worker.
    pub(crate) fn note(&mut self, line: &str) {
        let mut words = line.split(' ');
        let (Some(what), Some(key), Some(fence)) = (words.next(), words.next(), words.next())
        else {
            return;
        };
        let fence: u64 = fence.parse().unwrap();
        let history = self.keys.entry(key.to_owned()).or_default();
        match what {
            "claimed" => {
                assert!(self.fences.insert(fence), "fence {fence} was given twice");
                assert!(history.completed.is_none(), "{key} was claimed after it was completed");
                assert!(history.claim < Some(fence), "the fence of {key} did not grow");
                history.may_be_claimed(key);
                history.claim = Some(fence);
                history.trying = Trying::Nothing;
                self.summary.claims += 1;
            }
            "releasing" => history.trying = Trying::Release,
            "failing" => history.trying = Trying::Fail,
            "executed" => {
                history.trying = Trying::Complete;
                history.executions.push(fence);
                let at_most_once = promise_of(key) == OnLapsed::Hold;
                assert!(!at_most_once || history.executions.len() == 1, "{key} ran twice");
            }
            "saved" => history.saved = Some(fence),
            "completed" => {
                history.completed = Some(fence);
                self.summary.completed += 1;
            }
            other => panic!("a worker said {other:?}"),
        }
    }

    /// The process was killed: claims that were only in its memory are gone, by design.
    pub(crate) fn end_of_process(&mut self) {
        for (key, history) in &mut self.keys {
            if history.is_cut_short() {
                self.summary.cut_short += 1;
                if promise_of(key) == OnLapsed::Rerun {
                    history.trying = Trying::Release;
                }
            }
        }
    }

    /// Compares what the store keeps for a key with what was acknowledged.
    pub(crate) fn check(&self, key: &str, stored: Option<&Stored>) {
        let history = &self.keys[key];
        let shown = || format!("{key}: {history:?}, stored: {stored:?}");
        if let Some(fence) = history.completed {
            let Some(Entry::Record(record)) = stored.map(|s| &s.entry) else {
                panic!("an acknowledged outcome is lost: {}", shown());
            };
            let State::Completed(settled) = &record.state else {
                panic!("an acknowledged outcome is lost: {}", shown());
            };
            assert_eq!(record.fence.get(), fence, "{}", shown());
            assert_eq!(settled.outcome, outcome(key, fence), "{}", shown());
            return;
        }
        let Some(fence) = history.claim else { return };
        let durable = promise_of(key) != OnLapsed::Rerun;
        match (stored.map(|s| &s.entry), history.trying) {
            (None, Trying::Release) => {}
            // A claim that may be forgotten: nothing, or what was there before it.
            (_, _) if !durable => {}
            (Some(Entry::Record(record)), trying) => {
                assert!(record.fence.get() >= fence, "the claim is lost: {}", shown());
                check_state(&record.state, trying, history.saved == Some(fence), &shown());
            }
            _ => panic!("the claim is lost: {}", shown()),
        }
    }
}

fn check_state(state: &State, trying: Trying, saved: bool, shown: &str) {
    match (state, trying) {
        // What it tried may have happened, or not; nothing else may have.
        (State::Completed(_), Trying::Complete | Trying::Nothing) => {}
        (
            State::Failed(Failed::AwaitingRetry(_)),
            Trying::Fail | Trying::Release | Trying::Nothing,
        ) => {}
        (State::InProgress(claim), _) => {
            assert!(!saved || claim.checkpoint.is_some(), "the checkpoint is lost: {shown}");
        }
        (State::Unknown(_), _) => {}
        _ => panic!("nobody said that: {shown}"),
    }
}

impl KeyHistory {
    fn is_cut_short(&self) -> bool {
        self.claim.is_some() && self.completed.is_none() && self.trying != Trying::Release
    }

    /// Whether the store had the right to grant another claim.
    fn may_be_claimed(&self, key: &str) {
        if self.claim.is_some() && promise_of(key) == OnLapsed::Hold {
            assert!(
                matches!(self.trying, Trying::Release | Trying::Fail),
                "{key} was claimed again under hold: {self:?}"
            );
        }
    }
}
