//! Helpers for chapters in which many operations take the same step at once, so that a store with
//! batches sends some.

use std::sync::Arc;

use justonce_core::{
    Action, Answer, Claimed, Fence, Lost, Operation, Outcome, Owner, Policy, Step,
};

use super::backend::Backend;
use super::deviation::{Deviation, Verdict, ensure, ensure_eq};
use super::runner::Stage;
use super::stage::operation;

/// How many operations take a step at once: more than any store sends without batches.
const OPERATIONS: usize = 80;
/// How many callers each of them has where it has several.
const CALLERS: usize = 3;

/// The batches that a store sends from now on.
pub(super) struct Counted<'a, B: Backend> {
    stage: &'a Stage<B>,
    before: Option<u64>,
}

impl<'a, B: Backend> Counted<'a, B> {
    pub(super) fn new(stage: &'a Stage<B>) -> Self {
        Self { stage, before: stage.backend.batches() }
    }

    /// A store that has batches must have sent some.
    pub(super) fn ensure_batched(&self, what: &str) -> Verdict {
        let after = self.stage.backend.batches();
        ensure!(self.before.is_none() || after > self.before, "no batch was sent for {what}");
        Ok(())
    }
}

/// Operations that take their steps at the same moments.
pub(super) struct Crowd<'a, B: Backend> {
    stage: &'a Stage<B>,
    pub(super) operations: Vec<Operation>,
}

impl<'a, B: Backend> Crowd<'a, B> {
    pub(super) fn new(
        stage: &'a Stage<B>,
        name: &str,
        policy: &Arc<Policy>,
    ) -> Result<Self, Deviation> {
        let operations =
            (0..OPERATIONS).map(|number| operation(&format!("{name}-{number}"), policy));
        Ok(Self { stage, operations: operations.collect::<Result<_, _>>()? })
    }

    /// The same operations under another policy.
    pub(super) fn under(&self, policy: &Arc<Policy>) -> Self {
        let again = |one: &Operation| one.clone().with_policy(Arc::clone(policy));
        Self { stage: self.stage, operations: self.operations.iter().map(again).collect() }
    }

    /// A begin by a new call of one owner: stores may batch the begins of one owner only.
    fn begin(&self, operation: &Operation) -> Step {
        Step::begin(operation, Owner::new("crowd"), self.stage.token())
    }

    /// All are new or free: each must be claimed, in batches.
    pub(super) async fn claim(&self) -> Result<Vec<Claimed>, Deviation> {
        let counted = Counted::new(self.stage);
        let mut claims = Vec::new();
        let steps = self.operations.iter().map(|operation| self.begin(operation));
        for answer in self.stage.all(steps).await? {
            match answer {
                Answer::Claimed(claimed) => claims.push(claimed),
                other => {
                    return Err(Deviation::new(format!("what is free was answered {other:?}")));
                }
            }
        }
        counted.ensure_batched("begins")?;
        Ok(claims)
    }

    /// Several callers for each operation, all at once: the answers to each operation.
    pub(super) async fn ask(&self) -> Result<Vec<Vec<Answer>>, Deviation> {
        let callers = self.operations.iter().flat_map(|operation| [operation; CALLERS]);
        let steps: Vec<Step> = callers.map(|operation| self.begin(operation)).collect();
        let answers = self.stage.all(steps.into_iter()).await?;
        Ok(answers.chunks(CALLERS).map(<[Answer]>::to_vec).collect())
    }

    /// Completes all at once, each with an outcome of its own and its fence, in batches.
    pub(super) async fn complete(
        &self,
        fences: &[Fence],
        outcome: impl Fn(usize) -> Outcome,
    ) -> Result<Vec<Answer>, Deviation> {
        let counted = Counted::new(self.stage);
        let complete = |(number, (operation, fence)): (usize, (&Operation, &Fence))| {
            Step::new(operation.id(), Action::Complete(*fence, outcome(number)))
        };
        let steps: Vec<Step> =
            self.operations.iter().zip(fences).enumerate().map(complete).collect();
        let answers = self.stage.all(steps.into_iter()).await?;
        counted.ensure_batched("completions")?;
        Ok(answers)
    }

    /// The owners complete, and from then on every caller gets the outcome of its operation,
    /// whatever comes later.
    pub(super) async fn end(&self, fences: &[Fence]) -> Verdict {
        for answer in self.complete(fences, done).await? {
            ensure_eq!(answer, Answer::Applied, "the completion of an owner");
        }
        self.ensure_replays().await?;
        // Every second one once more, the others with another outcome.
        let again = |number: usize| if number.is_multiple_of(2) { done(number) } else { other() };
        for (number, answer) in self.complete(fences, again).await?.into_iter().enumerate() {
            let is_same = number.is_multiple_of(2);
            let expected = if is_same { Answer::Applied } else { Answer::Lost(Lost::Settled) };
            ensure_eq!(answer, expected, "a second completion");
        }
        self.ensure_replays().await
    }

    /// Several callers complete each operation at once, under one fence and with an outcome each:
    /// one of them is kept.
    pub(super) async fn compete(&self, fences: &[Fence]) -> Verdict {
        let counted = Counted::new(self.stage);
        let said = |number: usize| Outcome::bytes(format!("caller {number}"));
        let callers = self.operations.iter().zip(fences).flat_map(|both| [both; CALLERS]);
        let steps: Vec<Step> = callers
            .enumerate()
            .map(|(number, (operation, fence))| {
                Step::new(operation.id(), Action::Complete(*fence, said(number % CALLERS)))
            })
            .collect();
        let answers = self.stage.all(steps.into_iter()).await?;
        counted.ensure_batched("completions of the same operations")?;
        for (answers, replays) in answers.chunks(CALLERS).zip(self.ask().await?) {
            let mut kept = answers.iter().enumerate().filter(|(_, one)| **one == Answer::Applied);
            let winner = kept.next().map(|(number, _)| said(number));
            ensure!(winner.is_some() && kept.next().is_none(), "completions heard {answers:?}");
            for answer in answers {
                let is_right = matches!(answer, Answer::Applied | Answer::Lost(Lost::Settled));
                ensure!(is_right, "a completion heard {answer:?}");
            }
            for replay in replays {
                ensure_eq!(replay.completed(), winner.as_ref(), "the replay of what was kept");
            }
        }
        Ok(())
    }

    /// Every caller gets the outcome of its operation.
    pub(super) async fn ensure_replays(&self) -> Verdict {
        for (number, answers) in self.ask().await?.into_iter().enumerate() {
            for answer in answers {
                ensure_eq!(answer.completed(), Some(&done(number)), "a replay, not {answer:?}");
            }
        }
        Ok(())
    }
}

/// The outcome of an operation by number.
pub(super) fn done(number: usize) -> Outcome {
    Outcome::bytes(format!("the outcome of {number}"))
}

/// An outcome that is no operation's.
pub(super) fn other() -> Outcome {
    Outcome::bytes("the outcome of another caller")
}
