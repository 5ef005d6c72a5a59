//! The caller's writes and a checkpoint in one transaction: a phase that takes effect once.

use justonce_core::engine::Context;
use justonce_core::{Checkpoint, Fence, HandlerError, RecordId, StoreResult};
use tokio_postgres::types::ToSql;

use super::driver::{CallersTransaction, Param};
use super::in_doubt::Stored;
use super::transaction::Tx;
use super::transactional::KEPT_TRANSACTION;
use super::within::{Completion, completion};
use crate::numbers::fence_number;
use crate::store::PostgresStore;
use crate::timeline_codec::escaped;

impl PostgresStore {
    /// Saves a checkpoint in the transaction of the caller's writes: both are committed, or
    /// neither. The attempt that resumes the operation finds either none of the writes, or all of
    /// them with the checkpoint.
    ///
    /// The writer returns its result and the checkpoint, from [`Context::point`]. In the phases of
    /// `justonce-saga`, pass `phase.context()` and return `phase.point(…)`.
    ///
    /// ```no_run
    /// # use justonce_core::{HandlerError, engine::Context};
    /// # use justonce_postgres::PostgresStore;
    /// # async fn example(store: &PostgresStore, context: &Context) -> Result<(), HandlerError> {
    /// let room: i64 = store
    ///     .checkpoint_with(context, async |tx| {
    ///         let insert = "INSERT INTO rooms (guest) VALUES ('ada') RETURNING id";
    ///         let room: i64 = tx.query_one(insert, &[]).await?.try_get(0)?;
    ///         Ok((room, context.point("reserved", room.to_be_bytes().to_vec())?))
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The engine must be on this store, or on a layer around it.
    ///
    /// # Errors
    ///
    /// The error of the writer; and if the transaction was rolled back, or it cannot be told. The
    /// next attempt finds out.
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
        let (result, checkpoint) = write(tx).await?;
        let Some(transaction) = ending.into_sole() else {
            return Err(HandlerError::retryable(KEPT_TRANSACTION));
        };
        let (id, name, data) = (context.operation().id(), checkpoint.name(), &**checkpoint.data());
        let (now, id, fence) = (db.now(), id.as_bytes().as_slice(), fence_number(context.fence()));
        let (number, word) = (i64::from(checkpoint.number()), escaped(name));
        let name = name.as_bytes();
        let params: [&(dyn ToSql + Sync); 7] = [&now, &id, &fence, &name, &data, &number, &word];
        let stored = Stored::Checkpoint(checkpoint.number());
        let committed =
            self.commit(transaction, context, &db.sql.checkpoint_within, &params, stored);
        match committed.await {
            Ok(()) => Ok(result),
            // Earlier phases may be done: the key must not be freed.
            Err(HandlerError::NotExecuted) => Err(HandlerError::Unknown),
            Err(error) => Err(error),
        }
    }

    /// Saves a checkpoint of a claim inside the caller's transaction. Afterwards the caller
    /// commits, or rolls back if the claim was lost. The outer result is of the driver, the inner
    /// one of the store. The checkpoint is made by [`Context::point`], which gives it its number.
    ///
    /// # Errors
    ///
    /// If the driver fails, or the database gives an unexpected answer. Roll back then.
    pub async fn checkpoint_within<T: CallersTransaction>(
        &self,
        transaction: &mut T,
        id: &RecordId,
        fence: Fence,
        checkpoint: &Checkpoint,
    ) -> Result<StoreResult<Completion>, T::Error> {
        let db = &self.0.db;
        let word = escaped(checkpoint.name());
        let params = [
            Param::Maybe(db.now()),
            Param::Bytes(id.as_bytes()),
            Param::Number(fence_number(fence)),
            Param::Bytes(checkpoint.name().as_bytes()),
            Param::Bytes(checkpoint.data()),
            Param::Number(i64::from(checkpoint.number())),
            Param::Text(&word),
        ];
        let answer = transaction.query_text(&db.sql.checkpoint, &params).await?;
        Ok(completion(&answer))
    }
}
