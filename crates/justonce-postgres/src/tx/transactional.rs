//! The handler's writes and its outcome in one transaction.

use std::borrow::Cow;

use justonce_core::codec::encode_outcome;
use justonce_core::engine::Context;
use justonce_core::{Engine, HandlerError, OnLapsed, Operation, Outcome, Ran, RunError};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::in_doubt::{InDoubt, Stored};
use super::transaction::{Open, Tx};
use super::within::{Completion, completion};
use crate::error::is_rolled_back;
use crate::step::completion as parameters;
use crate::store::PostgresStore;

/// The error of a handler that keeps its transaction.
pub(super) const KEPT_TRANSACTION: &str = "the handler has not dropped its transaction";

impl PostgresStore {
    /// Runs a handler in a transaction if the operation is new; otherwise replays its outcome. The
    /// writes of the handler with the [`Tx`] and the outcome it returns are committed together or
    /// not at all: the writes take effect exactly once, also across crashes and lost replies.
    ///
    /// **All effects of the handler must be in the transaction.** Then an attempt that was not
    /// committed did nothing, and it cannot commit after a takeover, because the commit carries the
    /// fence. So a lapsed claim runs again under every policy, even [`OnLapsed::Hold`], and no
    /// operation becomes unknown because a process was killed. For a handler with other effects use
    /// [`Engine::run`] with [`PostgresStore::outcome_with`], which keeps the policy.
    ///
    /// The engine must be on this store, or on a layer around it. A handler that fails is rolled
    /// back, and its failure is stored. For another isolation level, `SET TRANSACTION` first.
    ///
    /// An error that the handler raises with `?` is a failure that may be retried, since nothing
    /// was committed.
    ///
    /// ```no_run
    /// # use justonce_core::{Engine, HandlerError, Operation, Outcome, Ran};
    /// # use justonce_postgres::PostgresStore;
    /// # async fn example(
    /// #     store: PostgresStore, operation: Operation,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = Engine::new(store.clone());
    /// let ran = store
    ///     .transactional(&engine, &operation, async |tx, _context| {
    ///         tx.execute("UPDATE accounts SET cents = cents - 5 WHERE name = 'ada'", &[]).await?;
    ///         tx.execute("UPDATE accounts SET cents = cents + 5 WHERE name = 'bob'", &[]).await?;
    ///         Ok(Outcome::bytes("moved 5"))
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Ran::Released`] means that the transaction could not be committed, for a reason outside of
    /// the handler: nothing happened, and the key is free.
    ///
    /// # Errors
    ///
    /// As [`Engine::run`].
    ///
    /// # Panics
    ///
    /// If the handler does, after everything has been rolled back.
    pub async fn transactional<H, F>(
        &self,
        engine: &Engine,
        operation: &Operation,
        handler: H,
    ) -> Result<Ran, RunError>
    where
        H: FnOnce(Tx, Context) -> F,
        F: Future<Output = Result<Outcome, HandlerError>>,
    {
        let operation = runs_again(operation);
        engine.run(&operation, |context| self.outcome_with(context, handler)).await
    }

    /// The handler of [`PostgresStore::transactional`] by itself, for handlers that have other
    /// effects too: the writes with the [`Tx`] and the outcome are committed together, and the
    /// operation's policy decides about a lapsed claim. Return its result from the handler. Under
    /// `hold` an error that the handler raises with `?` makes the operation unknown.
    ///
    /// # Errors
    ///
    /// The error of the handler; and if the transaction was rolled back.
    pub async fn outcome_with<H, F>(
        &self,
        context: Context,
        handler: H,
    ) -> Result<Outcome, HandlerError>
    where
        H: FnOnce(Tx, Context) -> F,
        F: Future<Output = Result<Outcome, HandlerError>>,
    {
        let (tx, ending) = Tx::open(&self.0.db).await.map_err(|error| {
            tracing::warn!(%error, "no transaction for a handler");
            HandlerError::NotExecuted
        })?;
        let outcome = handler(tx, context.clone()).await?;
        let Some(transaction) = ending.into_sole() else {
            return Err(HandlerError::retryable(KEPT_TRANSACTION));
        };
        let bytes = encode_outcome(&outcome);
        let (id, fence) = (context.operation().id(), context.fence());
        let params = parameters(self.0.db.now(), &id, fence, &bytes);
        let statement = &self.0.db.sql.complete_within;
        let params: [&(dyn ToSql + Sync); 4] = [&params.0, &params.1, &params.2, &params.3];
        self.commit(transaction, &context, statement, &params, Stored::Outcome).await?;
        self.0.committed.remember(id, fence);
        Ok(outcome)
    }

    /// Writes the record in the transaction, and commits.
    pub(super) async fn commit(
        &self,
        transaction: Open,
        context: &Context,
        statement: &str,
        params: &[&(dyn ToSql + Sync)],
        stored: Stored,
    ) -> Result<(), HandlerError> {
        let (id, fence) = (context.operation().id(), context.fence());
        let written = async {
            let client = transaction.client();
            let statement = client.prepare_cached(statement).await?;
            let row = client.query_one(&statement, params).await?;
            Ok((row.try_get::<_, String>(0)?, row.try_get(1)?, row.try_get(2)?))
        };
        // Nothing was committed yet, so whatever fails here is rolled back.
        let (answer, process, number) = written.await.map_err(|error| rolled_back(&error))?;
        match completion(&answer) {
            Ok(Completion::Stored) => {}
            // The engine finds out who owns it now.
            Ok(Completion::Lost(_)) | Err(_) => return Err(HandlerError::Unknown),
        }
        let Err(error) = transaction.commit().await else {
            return Ok(());
        };
        if is_rolled_back(&error) {
            return Err(rolled_back(&error));
        }
        let in_doubt = InDoubt { id, fence, process, number, stored };
        match in_doubt.is_committed(&self.0.db).await {
            Some(true) => Ok(()),
            Some(false) => Err(rolled_back(&error)),
            None => Err(HandlerError::Unknown),
        }
    }
}

/// The same operation with a policy that lets a lapsed claim run again.
fn runs_again(operation: &Operation) -> Cow<'_, Operation> {
    let policy = operation.policy();
    if policy.on_lapsed() != OnLapsed::Hold {
        return Cow::Borrowed(operation);
    }
    Cow::Owned(operation.clone().with_policy(policy.with_on_lapsed(OnLapsed::Rerun)))
}

/// Nothing was committed. If the database refused the writes, the handler has failed; after a
/// conflict or a lost connection the key is freed.
fn rolled_back(error: &Error) -> HandlerError {
    tracing::warn!(%error, "a transaction was rolled back");
    let refused = error.as_db_error().filter(|db| {
        let class = db.code().code().get(..2);
        let read_only = *db.code() == SqlState::READ_ONLY_SQL_TRANSACTION;
        !read_only && !matches!(class, Some("08" | "40" | "53" | "55" | "57" | "58"))
    });
    match refused {
        Some(db) => HandlerError::retryable(db.message()),
        None => HandlerError::NotExecuted,
    }
}
