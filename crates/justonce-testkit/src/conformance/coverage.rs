//! Which states met which actions, and which answers came.

use std::collections::BTreeSet;

use justonce_core::{Action, Answer, StateName};

use super::deviation::{Deviation, ensure};

/// The actions by name.
const ACTIONS: [&str; 12] = [
    "begin",
    "peek",
    "complete",
    "fail",
    "release",
    "renew",
    "checkpoint",
    "abandon",
    "resolve",
    "expire",
    "erase",
    "sweep",
];
/// The answers by name.
const ANSWERS: [&str; 14] = [
    "claimed",
    "completed",
    "failed",
    "busy",
    "unknown",
    "held",
    "mismatch",
    "expired",
    "claimable",
    "applied",
    "renewed",
    "capped",
    "lost",
    "swept",
];

/// Which states met which actions, and which answers came.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    met: BTreeSet<(StateName, &'static str)>,
    answers: BTreeSet<&'static str>,
    /// How many steps were compared.
    pub(super) steps: usize,
}

impl Coverage {
    pub(super) fn count(&mut self, state: StateName, action: &Action, answer: &Answer) {
        self.met.insert((state, action.name()));
        self.answers.insert(answer.name());
        self.steps += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.met.extend(&other.met);
        self.answers.extend(&other.answers);
        self.steps += other.steps;
    }

    /// Checks that every state met every action, and that every answer came.
    pub(super) fn ensure_complete(&self) -> Result<(), Deviation> {
        for state in StateName::ALL {
            for action in ACTIONS {
                let met = self.met.contains(&(state, action));
                ensure!(met, "no case drove {action} into {state}");
            }
        }
        for answer in ANSWERS {
            ensure!(self.answers.contains(answer), "no case was answered {answer}");
        }
        // A new action or answer must find its place in the lists above.
        ensure!(
            self.met.len() == StateName::ALL.len() * ACTIONS.len(),
            "an action is missing in the list of the suite: {:?}",
            self.met
        );
        ensure!(
            self.answers.len() == ANSWERS.len(),
            "an answer is missing in the list of the suite: {:?}",
            self.answers
        );
        Ok(())
    }
}
