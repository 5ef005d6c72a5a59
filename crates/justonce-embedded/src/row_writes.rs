//! The caller's own rows, written in one batch with a checkpoint or an outcome.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use justonce_core::engine::Context;
use justonce_core::{Action, Answer, Checkpoint, HandlerError, Outcome, RecordId, StoreResult};

use crate::commit::Ticket;
use crate::open::{EmbeddedStore, Inner};
use crate::rows::{RowName, RowWrite};
use crate::step::{StepResult, durable};

/// The rows that one phase or handler reads and writes. There is one writer at a time.
#[derive(Debug)]
pub struct RowWrites<'a> {
    inner: &'a Inner,
    writes: BTreeMap<RowName, Option<Vec<u8>>>,
}

impl<'a> RowWrites<'a> {
    const fn new(inner: &'a Inner) -> Self {
        Self { inner, writes: BTreeMap::new() }
    }

    /// A row, as it is or as it was written here.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn get(&self, row: &RowName) -> StoreResult<Option<Vec<u8>>> {
        match self.writes.get(row) {
            Some(value) => Ok(value.clone()),
            None => self.inner.row(row),
        }
    }

    /// Writes a row, with the checkpoint or the outcome.
    pub fn put(&mut self, row: RowName, value: impl Into<Vec<u8>>) {
        self.writes.insert(row, Some(value.into()));
    }

    /// Removes a row, with the checkpoint or the outcome.
    pub fn remove(&mut self, row: RowName) {
        self.writes.insert(row, None);
    }

    fn into_writes(self) -> Vec<RowWrite> {
        self.writes.into_iter().map(|(name, value)| RowWrite { name, value }).collect()
    }
}

impl EmbeddedStore {
    /// A row of yours, once it is durable. Rows lie beside the records, and are written with
    /// [`checkpoint_with`](Self::checkpoint_with) and [`outcome_with`](Self::outcome_with).
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub async fn row(&self, row: &RowName) -> StoreResult<Option<Vec<u8>>> {
        let state = &self.0.state;
        if let Some(kept) = state.rows.get(row) {
            durable(&kept.ticket).await?;
            return Ok(kept.value);
        }
        if state.reads.are_fast() {
            return state.reads.timed(|| state.disk.row(row));
        }
        let (inner, row) = (Arc::clone(&self.0), row.clone());
        let read = move || inner.state.reads.timed(|| inner.state.disk.row(&row));
        state.reads.apart(read).await
    }

    /// Writes rows and saves a checkpoint with them: both are durable, or neither.
    /// A resumed operation finds either nothing of it, or all of it with the checkpoint.
    ///
    /// The writer returns its result and the point, from [`Context::point`]; with the phases of
    /// `justonce-saga` from `Within::point`. Only one writer is at work at a time, so keep it
    /// short; it cannot wait for anything.
    ///
    /// ```
    /// use justonce_core::{Engine, HandlerError, Key, OnLapsed, Operation, Outcome, Policy, Scope};
    /// use justonce_embedded::{EmbeddedStore, RowName};
    /// use std::sync::Arc;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// let store = Arc::new(EmbeddedStore::open(&path)?);
    /// let engine = Engine::builder_shared(store.clone()).build();
    /// let policy = Policy::builder().on_lapsed(OnLapsed::Resume).build()?;
    /// let operation = Operation::without_fingerprint(Scope::global(), Key::client("order-17")?);
    /// let operation = operation.with_policy(policy);
    /// let room = RowName::new("rooms", "7")?;
    /// engine
    ///     .run(&operation, async |context| {
    ///         let write = |rows: &mut justonce_embedded::RowWrites<'_>| {
    ///             rows.put(room.clone(), "order-17");
    ///             let point = context.point("reserved", "7");
    ///             Ok(((), point.map_err(|_| HandlerError::Unknown)?))
    ///         };
    ///         store.checkpoint_with(&context, write).await?;
    ///         Ok(Outcome::bytes("room 7"))
    ///     })
    ///     .await?;
    /// assert_eq!(store.row(&room).await?.as_deref(), Some(&b"order-17"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The engine must be on this store, or on a decorator around it.
    ///
    /// # Errors
    ///
    /// What the writer says, and if the claim was lost or the store has stopped. Then nothing
    /// was written, or it is unknown; either way the next attempt finds out. Also if there
    /// are rows and the point is stored already, or a later one is: a step that changes nothing
    /// takes no rows along, and none were written.
    pub async fn checkpoint_with<T>(
        &self,
        context: &Context,
        write: impl FnOnce(&mut RowWrites<'_>) -> Result<(T, Checkpoint), HandlerError>,
    ) -> Result<T, HandlerError> {
        self.write_with(context, |rows| {
            let (result, point) = write(rows)?;
            Ok((result, Action::Checkpoint(context.fence(), point)))
        })
        .await
    }

    /// Writes rows and completes the operation with them: both are durable, or neither. A handler
    /// that ends with this takes effect exactly once. Return what this returns.
    ///
    /// # Errors
    ///
    /// As of [`checkpoint_with`](Self::checkpoint_with); also if there are rows and the same
    /// outcome is stored already.
    pub async fn outcome_with(
        &self,
        context: &Context,
        write: impl FnOnce(&mut RowWrites<'_>) -> Result<Outcome, HandlerError>,
    ) -> Result<Outcome, HandlerError> {
        self.write_with(context, |rows| {
            let outcome = write(rows)?;
            Ok((outcome.clone(), Action::Complete(context.fence(), outcome)))
        })
        .await
    }

    async fn write_with<T>(
        &self,
        context: &Context,
        write: impl FnOnce(&mut RowWrites<'_>) -> Result<(T, Action), HandlerError>,
    ) -> Result<T, HandlerError> {
        let (result, pending) = self.0.write_rows(context.operation().id(), write)?;
        if let Some(ticket) = pending {
            durable(&ticket).await.map_err(|_| HandlerError::Unknown)?;
        }
        Ok(result)
    }
}

impl Inner {
    /// A row, as it will be once what is on its way is written.
    fn row(&self, row: &RowName) -> StoreResult<Option<Vec<u8>>> {
        // First what is on its way: it leaves there only once the engine has it.
        match self.state.rows.get(row) {
            Some(kept) => Ok(kept.value),
            None => self.state.disk.row(row),
        }
    }

    fn write_rows<T>(
        &self,
        id: RecordId,
        write: impl FnOnce(&mut RowWrites<'_>) -> Result<(T, Action), HandlerError>,
    ) -> Result<(T, Option<Ticket>), HandlerError> {
        let _alone = self.row_writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows = RowWrites::new(self);
        let (result, action) = write(&mut rows)?;
        let tried = self.stepper().attempt_with(id, &action, rows.into_writes());
        // The operation as a whole may be half done: its key must not be given back.
        match tried.map_err(|_| HandlerError::Unknown)? {
            StepResult::Decided(Answer::Applied, pending) => Ok((result, pending)),
            // The engine finds out the state itself.
            StepResult::Decided(..) | StepResult::NoFences => Err(HandlerError::Unknown),
        }
    }
}
