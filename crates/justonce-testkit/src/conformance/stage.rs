//! Helpers for chapters that apply single steps to the store.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use justonce_core::store::{Records, Stored};
use justonce_core::{
    Action, Answer, Claimed, Fence, Fingerprint, Key, Operation, Owner, Policy, Scope, Step, Token,
};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::backend::Backend;
use super::deviation::{Deviation, ensure};
use super::runner::Stage;

/// When a call that must return counts as lost. It detects failures and paces nothing.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(30);

/// An operation of this name.
pub(super) fn operation(name: &str, policy: &Arc<Policy>) -> Result<Operation, Deviation> {
    let scope = Scope::builder().tenant("stage").build()?;
    let print = Fingerprint::of(&scope, b"asked");
    let operation = Operation::new(scope, Key::client(name)?, print);
    Ok(operation.with_policy(Arc::clone(policy)))
}

impl<B: Backend> Stage<B> {
    /// A token that no other call has.
    pub(super) fn token(&self) -> Token {
        Token(self.tokens.fetch_add(1, Ordering::Relaxed).into())
    }

    /// A step of begin by a new call.
    pub(super) fn begin_step(&self, operation: &Operation) -> Step {
        let token = self.token();
        Step::begin(operation, Owner::new(&format!("owner {}", token.0)), token)
    }

    pub(super) async fn begin(&self, operation: &Operation) -> Result<Answer, Deviation> {
        Ok(self.store.apply(&self.begin_step(operation)).await?)
    }

    /// A begin that must claim.
    pub(super) async fn claim(&self, operation: &Operation) -> Result<Claimed, Deviation> {
        match self.begin(operation).await? {
            Answer::Claimed(claimed) => Ok(claimed),
            other => Err(Deviation::new(format!("a begin of what is free was answered {other:?}"))),
        }
    }

    pub(super) async fn apply(
        &self,
        operation: &Operation,
        action: Action,
    ) -> Result<Answer, Deviation> {
        Ok(self.store.apply(&Step::new(operation.id(), action)).await?)
    }

    /// Takes all steps at the same moment. The answers come in their order.
    pub(super) async fn all(
        &self,
        steps: impl ExactSizeIterator<Item = Step>,
    ) -> Result<Vec<Answer>, Deviation> {
        let answers = together(steps.map(|step| {
            let store = Arc::clone(&self.store);
            async move { store.apply(&step).await }
        }));
        let answers: Result<Vec<Answer>, _> = answers.await?.into_iter().collect();
        Ok(answers?)
    }

    /// A write that must be applied.
    pub(super) async fn write(
        &self,
        operation: &Operation,
        action: Action,
    ) -> Result<(), Deviation> {
        let name = action.name();
        let answer = self.apply(operation, action).await?;
        let applied = matches!(answer, Answer::Applied | Answer::Held(_));
        ensure!(applied, "{name} was answered {answer:?}");
        Ok(())
    }

    /// What is stored, if anything.
    pub(super) async fn get(&self, operation: &Operation) -> Result<Option<Stored>, Deviation> {
        Ok(self.store.get(&operation.id()).await?)
    }

    /// What must be stored.
    pub(super) async fn kept(&self, operation: &Operation) -> Result<Stored, Deviation> {
        let stored = self.get(operation).await?;
        stored.ok_or_else(|| Deviation::new("a record is gone that must be kept"))
    }

    pub(super) async fn advance(&self, by: Duration) -> Result<(), Deviation> {
        Ok(self.backend.advance(by).await?)
    }

    /// Two claims of one record, the first of which has lapsed.
    pub(super) async fn taken_over(
        &self,
        operation: &Operation,
    ) -> Result<(Fence, Fence), Deviation> {
        let old = self.claim(operation).await?.fence;
        self.advance(operation.policy().lease()).await?;
        let new = self.claim(operation).await?.fence;
        ensure!(new > old, "a takeover got fence {new} after {old}");
        Ok((old, new))
    }
}

/// Runs futures in tasks of their own that all start at the same moment. The results come in their
/// order.
pub(super) async fn together<T, F>(
    work: impl ExactSizeIterator<Item = F>,
) -> Result<Vec<T>, Deviation>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let count = work.len();
    let start = Arc::new(Barrier::new(count));
    let mut tasks = JoinSet::new();
    for (number, work) in work.enumerate() {
        let start = Arc::clone(&start);
        tasks.spawn(async move {
            start.wait().await;
            (number, work.await)
        });
    }
    let mut results = Vec::with_capacity(count);
    while let Some(result) = tasks.join_next().await {
        results.push(result?);
    }
    results.sort_by_key(|(number, _)| *number);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
