//! How operations of one kind are driven on.

use std::future::ready;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use justonce_core::{
    Checkpoint, Engine, HandlerError, HeldClaim, Operation, Outcome, Scope, ScopeError,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::phases::{PhaseRun, Phases, PhasesError};
use crate::saga::{Log, Saga, SagaError, SagaRan, StuckSaga, Taken, park_phases, park_saga, take};

/// What became of an operation that the completer looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriveEnd {
    /// It has ended.
    Ended,
    /// It is stuck, or failed for now: another round tries again.
    NotYet,
    /// Another owner has it, or it has ended meanwhile.
    Left,
    /// It is parked now, for this reason: it is not driven on before a retry.
    Parked(String),
    /// It cannot be driven, for this reason.
    Trouble(String),
}

/// How far an operation has come, as its checkpoint says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The attempt that brought it on last. Each later claim was a drive that failed.
    pub attempt: u32,
    /// Why it is parked; nothing while it may be driven.
    pub parked: Option<String>,
}

/// Drives operations of one kind on.
pub trait Driver: Send + Sync + 'static {
    /// The kind, in messages: the operation in the scope of its records, if nothing else is said.
    fn name(&self) -> &str;

    /// The scope of its records. Default: all whose operation is the name.
    ///
    /// # Errors
    ///
    /// If the name cannot be the operation of a scope.
    fn scope(&self) -> Result<Scope, ScopeError> {
        Scope::builder().operation(self.name()).build()
    }

    /// Whether operations of this kind can be *failed* and due to be tried again. Sagas cannot.
    fn retries(&self) -> bool {
        false
    }

    /// Whether this release can go on from a checkpoint. What does not fit is not even begun,
    /// so that no attempt is wasted on it.
    ///
    /// # Errors
    ///
    /// The reason why it cannot.
    fn fits(&self, point: &Checkpoint) -> Result<(), String>;

    /// How far an operation has come. Default: not at all, so that each of its attempts counts as
    /// a drive that failed.
    fn progress(&self, point: &Checkpoint) -> Progress {
        let _ = point;
        Progress::default()
    }

    /// Parks an operation of which at least `limit` drives in a row have failed. Default: this
    /// completer leaves it, and says so.
    fn park(
        &self,
        engine: &Engine,
        operation: Operation,
        limit: u32,
    ) -> BoxFuture<'static, DriveEnd> {
        let _ = (engine, operation);
        ready(DriveEnd::Parked(format!("{limit} drives in a row have failed"))).boxed()
    }

    /// Begins the operation and drives it on, unless another owner does.
    fn drive(&self, engine: &Engine, operation: Operation) -> BoxFuture<'static, DriveEnd>;
}

impl<C> Driver for Saga<C>
where
    C: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        self.name()
    }

    fn fits(&self, point: &Checkpoint) -> Result<(), String> {
        self.read(point).map(|_| ()).map_err(|error| error.to_string())
    }

    fn progress(&self, point: &Checkpoint) -> Progress {
        let log = Log::read(point).ok();
        log.map_or_else(Progress::default, |log| Progress {
            attempt: log.progressed(),
            parked: log.parked().map(str::to_owned),
        })
    }

    fn park(
        &self,
        engine: &Engine,
        operation: Operation,
        limit: u32,
    ) -> BoxFuture<'static, DriveEnd> {
        let (engine, operation) = (engine.clone(), self.resumed(operation));
        async move { parked(park_saga(&engine, operation, limit).await) }.boxed()
    }

    fn drive(&self, engine: &Engine, operation: Operation) -> BoxFuture<'static, DriveEnd> {
        let (saga, engine) = (self.clone(), engine.clone());
        async move {
            let operation = saga.resumed(operation);
            let claim = match begin(&engine, &operation).await {
                Ok(claim) => claim,
                Err(drove) => return drove,
            };
            match saga.execute(&engine, &operation, claim).await {
                Ok(SagaRan::Ended(_) | SagaRan::Replayed(_)) => DriveEnd::Ended,
                Ok(SagaRan::Stuck(StuckSaga { parked: Some(why), .. })) => DriveEnd::Parked(why),
                Ok(SagaRan::Stuck(_) | SagaRan::Unfinished) => DriveEnd::NotYet,
                Ok(_) => DriveEnd::Left,
                Err(SagaError::Unsavable(why)) => DriveEnd::Parked(why),
                Err(error) => DriveEnd::Trouble(error.to_string()),
            }
        }
        .boxed()
    }
}

type Handler =
    Arc<dyn Fn(PhaseRun) -> BoxFuture<'static, Result<Outcome, HandlerError>> + Send + Sync>;

/// Phases with the handler that goes through them.
pub(super) struct PhasesDriver {
    name: String,
    phases: Phases,
    handler: Handler,
}

impl PhasesDriver {
    pub(super) fn new<H, F>(name: String, phases: Phases, handler: H) -> Self
    where
        H: Fn(PhaseRun) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Outcome, HandlerError>> + Send + 'static,
    {
        Self { name, phases, handler: Arc::new(move |run| handler(run).boxed()) }
    }
}

impl Driver for PhasesDriver {
    fn name(&self) -> &str {
        &self.name
    }

    fn retries(&self) -> bool {
        true
    }

    fn fits(&self, point: &Checkpoint) -> Result<(), String> {
        self.phases.read(point).map(|_| ()).map_err(|error| error.to_string())
    }

    fn progress(&self, point: &Checkpoint) -> Progress {
        let journal = self.phases.read(point).ok();
        journal.map_or_else(Progress::default, |journal| Progress {
            attempt: journal.progressed(),
            parked: journal.parked().map(str::to_owned),
        })
    }

    fn park(
        &self,
        engine: &Engine,
        operation: Operation,
        limit: u32,
    ) -> BoxFuture<'static, DriveEnd> {
        let engine = engine.clone();
        async move { parked(park_phases(&engine, operation, limit).await) }.boxed()
    }

    fn drive(&self, engine: &Engine, operation: Operation) -> BoxFuture<'static, DriveEnd> {
        let (phases, handler) = (self.phases.clone(), Arc::clone(&self.handler));
        let engine = engine.clone();
        async move {
            let claim = match begin(&engine, &operation).await {
                Ok(claim) => claim,
                Err(drove) => return drove,
            };
            match phases.execute(&engine, &operation, claim, |run| handler(run)).await {
                Ok(ran) if ran.outcome().is_some() => DriveEnd::Ended,
                Ok(_) => DriveEnd::NotYet,
                Err(error @ PhasesError::Unsavable { .. }) => DriveEnd::Parked(error.to_string()),
                Err(error) => DriveEnd::Trouble(error.to_string()),
            }
        }
        .boxed()
    }
}

/// What became of parking.
fn parked(parked: Result<Option<String>, SagaError>) -> DriveEnd {
    match parked {
        Ok(Some(why)) => DriveEnd::Parked(why),
        Ok(None) => DriveEnd::Left,
        Err(error) => DriveEnd::Trouble(error.to_string()),
    }
}

/// The claim, unless another owner has it. An operation of which nothing is left is not begun anew.
async fn begin(engine: &Engine, operation: &Operation) -> Result<HeldClaim, DriveEnd> {
    match take(engine, operation).await {
        Ok(Taken::Held(claim, _)) => Ok(claim),
        Ok(Taken::Busy | Taken::None) => Err(DriveEnd::Left),
        Err(error) => Err(DriveEnd::Trouble(error.to_string())),
    }
}
