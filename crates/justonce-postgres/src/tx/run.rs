//! Run in a transaction: the handler's writes and its outcome, together or not at all.

use std::borrow::Cow;

use justonce_core::codec::encode_outcome;
use justonce_core::engine::Context;
use justonce_core::{Engine, HandlerError, OnLapsed, Operation, Outcome, Ran, RunError};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::doubt::{Became, Brings, InDoubt};
use super::handle::{Sole, Tx};
use super::within::{Completion, completion};
use crate::error::is_rolled_back;
use crate::open::PostgresStore;
use crate::step::completion as parameters;

/// What a handler hears that keeps its transaction.
pub(super) const NOT_LET_GO: &str = "the handler has not let go of its transaction";

impl PostgresStore {
    /// Runs a handler in a transaction, if the operation is new, and replays its outcome if it is
    /// not. What the handler writes with the [`Tx`] and the outcome it returns are committed
    /// together or not at all: the writes take effect exactly once, whatever dies or is lost.
    ///
    /// **All effects of the handler must be in the transaction.** An attempt that was not committed
    /// then did nothing, and can never be committed once another has taken over: the commit carries
    /// the fence. So a lapsed claim runs again under every policy, also where it says
    /// [`OnLapsed::Hold`], and no operation becomes unknown because a process was killed. A handler
    /// with effects elsewhere belongs into [`Engine::run`] with [`PostgresStore::outcome_with`]:
    /// there the policy holds as it is.
    ///
    /// The engine must be on this store, or on a decorator around it. A handler that fails is
    /// rolled back, and its failure is stored. To run in another isolation level, `SET TRANSACTION`
    /// first.
    ///
    /// An error that the handler raises with `?` is a failure that may be tried again, since
    /// nothing was committed.
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
    /// [`Ran::Released`] says that the transaction could not be committed for a reason that is not
    /// the handler's: nothing happened, and the key is free.
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

    /// The handler of [`PostgresStore::transactional`] by itself, for handlers that have effects
    /// elsewhere too: what is written with the [`Tx`] and the outcome are committed together, and
    /// the operation's policy says what becomes of a lapsed claim. Return what this returns. Under
    /// `hold` an error that the handler raises with `?` makes the operation unknown.
    ///
    /// # Errors
    ///
    /// What the handler says, and if the transaction was rolled back.
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
        let Some(transaction) = ending.alone() else {
            return Err(HandlerError::retryable(NOT_LET_GO));
        };
        let bytes = encode_outcome(&outcome);
        let (id, fence) = (context.operation().id(), context.fence());
        let with = parameters(self.0.db.now(), &id, fence, &bytes);
        let statement = &self.0.db.sql.complete_within;
        let with: [&(dyn ToSql + Sync); 4] = [&with.0, &with.1, &with.2, &with.3];
        self.commit(transaction, &context, statement, &with, Brings::Outcome).await?;
        self.0.committed.remember(id, fence);
        Ok(outcome)
    }

    /// Says to the record what the transaction brings, and commits.
    pub(super) async fn commit(
        &self,
        transaction: Sole,
        context: &Context,
        statement: &str,
        with: &[&(dyn ToSql + Sync)],
        brings: Brings,
    ) -> Result<(), HandlerError> {
        let (id, fence) = (context.operation().id(), context.fence());
        let stored = async {
            let client = transaction.client();
            let statement = client.prepare_cached(statement).await?;
            let row = client.query_one(&statement, with).await?;
            Ok((row.try_get::<_, String>(0)?, row.try_get(1)?, row.try_get(2)?))
        };
        // Nothing was committed yet, so whatever fails here is rolled back.
        let (answer, process, number) = stored.await.map_err(|error| rolled_back(&error))?;
        match completion(Some(&answer)) {
            Ok(Completion::Stored) => {}
            // The engine finds out by itself who has it now.
            Ok(Completion::Lost(_)) | Err(_) => return Err(HandlerError::Unknown),
        }
        let Err(error) = transaction.commit().await else {
            return Ok(());
        };
        if is_rolled_back(&error) {
            return Err(rolled_back(&error));
        }
        let doubt = InDoubt { id, fence, process, number, brings };
        match doubt.became(&self.0.db).await {
            Some(Became::Committed) => Ok(()),
            Some(Became::RolledBack) => Err(rolled_back(&error)),
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

/// Nothing was committed. Where the database refused what the handler did, that is the handler's
/// failure; a conflict or a lost connection is nobody's.
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
