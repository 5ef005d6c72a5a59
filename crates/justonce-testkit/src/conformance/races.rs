//! Chapters: many callers at the same moment, and one of them wins.

use std::sync::Arc;

use justonce_core::{
    Action, Answer, Busy, BusyWhy, Claimed, Existing, Failure, FailureKind, Lost, NoteKind,
    OnLapsed, Operation, Outcome, Step, UnknownReason,
};

use super::backend::Backend;
use super::deviation::{Deviation, Verdict, ensure, ensure_eq};
use super::runner::Stage;
use super::stage::operation;

/// How many callers all rounds of one race have together, at least.
const CALLERS: usize = 100;

/// Two callers at a time.
///
/// # Errors
///
/// If more than one of them wins, or none.
pub async fn races_2<B: Backend>(backend: B) -> Verdict {
    races(backend, 2).await
}

/// Fifty callers at a time.
///
/// # Errors
///
/// If more than one of them wins, or none.
pub async fn races_50<B: Backend>(backend: B) -> Verdict {
    races(backend, 50).await
}

/// A thousand callers at a time.
///
/// # Errors
///
/// If more than one of them wins, or none.
pub async fn races_1000<B: Backend>(backend: B) -> Verdict {
    races(backend, 1000).await
}

async fn races<B: Backend>(backend: B, callers: usize) -> Verdict {
    let race = Race { stage: Arc::new(Stage::new(backend)?), callers };
    for round in 0..CALLERS.div_ceil(callers).max(2) {
        race.for_a_new_key(round).await?;
        race.for_a_lapsed_claim(round).await?;
        race.for_a_held_claim(round).await?;
        race.for_a_retry(round).await?;
        race.to_complete(round).await?;
        race.to_complete_against_a_takeover(round).await?;
        race.with_one_token(round).await?;
    }
    Ok(())
}

struct Race<B: Backend> {
    stage: Arc<Stage<B>>,
    callers: usize,
}

impl<B: Backend> Race<B> {
    fn operation(&self, name: &str, round: usize, rule: OnLapsed) -> Result<Operation, Deviation> {
        let policy = self.stage.setting.on_lapsed(rule)?;
        operation(&format!("{name}-{rule:?}-{round}"), &policy)
    }

    /// All take a step at the same moment.
    async fn all(&self, step: impl Fn(usize) -> Step) -> Result<Vec<Answer>, Deviation> {
        self.stage.all((0..self.callers).map(step)).await
    }

    async fn all_begin(&self, operation: &Operation) -> Result<Vec<Answer>, Deviation> {
        self.all(|_| self.stage.begin_step(operation)).await
    }

    async fn for_a_new_key(&self, round: usize) -> Verdict {
        for rule in [OnLapsed::Rerun, OnLapsed::Resume, OnLapsed::Hold] {
            let operation = self.operation("new", round, rule)?;
            let claimed = one_claim(&self.all_begin(&operation).await?)?;
            ensure_eq!(claimed.attempt, 1, "the winner's attempt");
        }
        Ok(())
    }

    async fn for_a_lapsed_claim(&self, round: usize) -> Verdict {
        let operation = self.operation("lapsed", round, OnLapsed::Rerun)?;
        let old = self.stage.claim(&operation).await?.fence;
        self.stage.advance(operation.policy().lease()).await?;
        let claimed = one_claim(&self.all_begin(&operation).await?)?;
        ensure_eq!(claimed.attempt, 2, "the winner's attempt");
        ensure!(claimed.fence > old, "{} after {old}", claimed.fence);
        Ok(())
    }

    /// Under `hold` no caller wins, and the claim is held once.
    async fn for_a_held_claim(&self, round: usize) -> Verdict {
        let operation = self.operation("held", round, OnLapsed::Hold)?;
        let fence = self.stage.claim(&operation).await?.fence;
        self.stage.advance(operation.policy().lease()).await?;
        let mut told = 0;
        for answer in self.all_begin(&operation).await? {
            told += usize::from(matches!(answer, Answer::Held(_)));
            let is_unknown = matches!(
                &answer,
                Answer::Existing(Existing::Unknown(unknown)) | Answer::Held(unknown)
                    if unknown.fence == fence && unknown.reason == UnknownReason::Lapsed
            );
            ensure!(is_unknown, "a held operation was answered {answer:?}");
        }
        ensure_eq!(told, 1, "begins that heard that they made it unknown");
        let timeline = self.stage.kept(&operation).await?.timeline;
        let held = NoteKind::Held(UnknownReason::Lapsed);
        let times = timeline.notes().iter().filter(|note| note.kind == held);
        ensure_eq!(times.count(), 1, "notes of being held");
        Ok(())
    }

    async fn for_a_retry(&self, round: usize) -> Verdict {
        let operation = self.operation("retry", round, OnLapsed::Rerun)?;
        let fence = self.stage.claim(&operation).await?.fence;
        let failure = Failure {
            outcome: Outcome::bytes("the bank is away"),
            kind: FailureKind::Passing,
            jitter: 0,
        };
        let fail = Action::Fail(fence, failure);
        self.stage.write(&operation, fail).await?;
        for answer in self.all_begin(&operation).await? {
            let backs_off = matches!(
                answer,
                Answer::Existing(Existing::Busy(Busy { why: BusyWhy::BackOff, .. }))
            );
            ensure!(backs_off, "during the back-off: {answer:?}");
        }
        self.stage.advance(operation.policy().lease() * 4).await?;
        let claimed = one_claim(&self.all_begin(&operation).await?)?;
        ensure_eq!(claimed.attempt, 2, "the winner's attempt");
        Ok(())
    }

    /// Each has another outcome: one is stored, and all get that one from then on.
    async fn to_complete(&self, round: usize) -> Verdict {
        let operation = self.operation("complete", round, OnLapsed::Rerun)?;
        let fence = self.stage.claim(&operation).await?.fence;
        let said = |number| Outcome::bytes(format!("outcome {number}"));
        let complete = |number| Step::new(operation.id(), Action::Complete(fence, said(number)));
        let answers = self.all(complete).await?;
        let mut winner = None;
        for (number, answer) in answers.into_iter().enumerate() {
            if answer == Answer::Applied {
                ensure!(winner.is_none(), "two outcomes were applied");
                winner = Some(said(number));
            } else {
                ensure_eq!(answer, Answer::Lost(Lost::Settled), "a second outcome");
            }
        }
        let stored = winner.ok_or_else(|| Deviation::new("no outcome was applied"))?;
        for answer in self.all_begin(&operation).await? {
            ensure_eq!(answer.completed(), Some(&stored), "a replay");
        }
        Ok(())
    }

    /// A late owner and its successors: either the owner's outcome is stored and all replay it, or
    /// one of them took over and the owner is told.
    async fn to_complete_against_a_takeover(&self, round: usize) -> Verdict {
        let operation = self.operation("late", round, OnLapsed::Rerun)?;
        let fence = self.stage.claim(&operation).await?.fence;
        self.stage.advance(operation.policy().lease()).await?;
        let outcome = Outcome::bytes("late, but done");
        let mut answers = self
            .all(|number| match number {
                0 => Step::new(operation.id(), Action::Complete(fence, outcome.clone())),
                _ => self.stage.begin_step(&operation),
            })
            .await?;
        let begins = answers.split_off(1);
        match answers.first() {
            Some(Answer::Applied) => {
                for answer in begins {
                    ensure_eq!(
                        answer.completed(),
                        Some(&outcome),
                        "a begin after the late outcome"
                    );
                }
            }
            Some(Answer::Lost(Lost::Superseded)) => {
                one_claim(&begins)?;
            }
            other => return Err(Deviation::new(format!("the late owner heard {other:?}"))),
        }
        Ok(())
    }

    /// One call whose request was repeated: each copy gets the same claim.
    async fn with_one_token(&self, round: usize) -> Verdict {
        let operation = self.operation("token", round, OnLapsed::Hold)?;
        let step = self.stage.begin_step(&operation);
        let answers = self.all(|_| step.clone()).await?;
        let mut claims = answers.iter().map(|answer| match answer {
            Answer::Claimed(claimed) => Some((claimed.fence, claimed.attempt)),
            _ => None,
        });
        let first = claims.next().flatten();
        let alike =
            first.is_some_and(|(_, attempt)| attempt == 1) && claims.all(|claim| claim == first);
        ensure!(alike, "one call, several answers: {answers:?}");
        Ok(())
    }
}

/// Checks that one of the begins claimed and all others got that claim as existing.
pub(super) fn one_claim(answers: &[Answer]) -> Result<Claimed, Deviation> {
    let mut claims = answers.iter().filter_map(|answer| match answer {
        Answer::Claimed(claimed) => Some(claimed),
        _ => None,
    });
    let Some(claimed) = claims.next() else {
        return Err(Deviation::new("nobody got the claim"));
    };
    let more = claims.count();
    ensure!(more == 0, "{} callers got the claim", more + 1);
    for answer in answers {
        let is_right = match answer {
            Answer::Claimed(_) => true,
            Answer::Existing(Existing::Busy(busy)) => {
                busy.fence == claimed.fence && busy.why == BusyWhy::Running
            }
            _ => false,
        };
        ensure!(is_right, "{} is running, and a begin heard {answer:?}", claimed.fence);
    }
    Ok(claimed.clone())
}
