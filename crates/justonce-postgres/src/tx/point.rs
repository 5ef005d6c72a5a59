//! The caller's writes and a recovery point in one transaction: a phase that takes effect once.

use justonce_core::engine::Context;
use justonce_core::{Checkpoint, Fence, HandlerError, RecordId, StoreResult};
use tokio_postgres::types::ToSql;

use super::callers::{CallersTransaction, Param};
use super::doubt::Brings;
use super::handle::Tx;
use super::run::NOT_LET_GO;
use super::within::{Completion, completion};
use crate::numbers::fence_number;
use crate::open::PostgresStore;
use crate::words::escaped;

impl PostgresStore {
    /// Writes in a transaction and saves a recovery point with it: both are committed, or neither.
    /// Whoever resumes the operation finds either nothing of it, or all of it with the point.
    ///
    /// The writer returns its result and the point, from [`Context::point`]. For the phases of
    /// `justonce-saga` it looks like this:
    ///
    /// ```ignore
    /// let room: i64 = run
    ///     .phase_within("reserve", async |phase| {
    ///         store
    ///             .checkpoint_with(phase.context(), async |tx| {
    ///                 let row = tx.query_one("INSERT INTO rooms … RETURNING id", &[]).await?;
    ///                 let room: i64 = row.try_get(0)?;
    ///                 Ok((room, phase.point(&room)?))
    ///             })
    ///             .await
    ///     })
    ///     .await?;
    /// ```
    ///
    /// The engine must be on this store, or on a decorator around it.
    ///
    /// # Errors
    ///
    /// What the writer says, and if the transaction was rolled back. Nothing was written then, or
    /// nobody could tell; either way the next attempt finds out.
    pub async fn checkpoint_with<T, W, F>(
        &self,
        context: &Context,
        write: W,
    ) -> Result<T, HandlerError>
    where
        W: FnOnce(Tx) -> F,
        F: Future<Output = Result<(T, Checkpoint), HandlerError>>,
    {
        let db = &self.0.db;
        let (tx, ending) = Tx::open(db).await.map_err(|error| {
            tracing::warn!(%error, "no transaction for a phase");
            HandlerError::Unknown
        })?;
        let (result, point) = write(tx).await?;
        let Some(transaction) = ending.alone() else {
            return Err(HandlerError::retryable(NOT_LET_GO));
        };
        let (id, name, data) = (context.operation().id(), point.name(), &**point.data());
        let (now, id, fence) = (db.now(), id.as_bytes().as_slice(), fence_number(context.fence()));
        let (number, word) = (i64::from(point.number()), escaped(name));
        let name = name.as_bytes();
        let with: [&(dyn ToSql + Sync); 7] = [&now, &id, &fence, &name, &data, &number, &word];
        let brings = Brings::Checkpoint(point.number());
        let committed = self.commit(transaction, context, &db.sql.checkpoint_within, &with, brings);
        match committed.await {
            Ok(()) => Ok(result),
            // The operation as a whole may be half done: its key must not be given back.
            Err(HandlerError::NotExecuted) => Err(HandlerError::Unknown),
            Err(error) => Err(error),
        }
    }

    /// Saves a recovery point of a claim inside the caller's transaction. Afterwards the caller
    /// commits, or rolls back if the claim was lost. The outer result is of the driver, the inner
    /// one of the store. The point is one of [`Context::point`], which gives it its number.
    ///
    /// # Errors
    ///
    /// If the driver fails, or the database answers what it should not. Roll back then.
    pub async fn checkpoint_within<T: CallersTransaction>(
        &self,
        transaction: &mut T,
        id: &RecordId,
        fence: Fence,
        point: &Checkpoint,
    ) -> Result<StoreResult<Completion>, T::Error> {
        let db = &self.0.db;
        let word = escaped(point.name());
        let params = [
            Param::Maybe(db.now()),
            Param::Bytes(id.as_bytes()),
            Param::Number(fence_number(fence)),
            Param::Bytes(point.name().as_bytes()),
            Param::Bytes(point.data()),
            Param::Number(i64::from(point.number())),
            Param::Text(&word),
        ];
        let answer = transaction.ask(&db.sql.checkpoint, &params).await?;
        Ok(completion(Some(&answer)))
    }
}
