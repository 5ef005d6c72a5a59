//! Typed results: an outcome as JSON, with the name and version of its type.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::begin::Begun;
use super::builder::Engine;
use super::context::Context;
use super::handler_error::HandlerError;
use super::ran::{Ran, RunError};
use crate::operation::Operation;
use crate::outcome::{Body, Outcome, OutcomeBuilder, OutcomeError};

/// The header of an outcome that names the type of its body.
const TYPE_HEADER: &str = "justonce-type";
/// What an operator reads of an operation whose result could not be written.
const UNWRITABLE: &str = "the handler's result cannot be stored as JSON";

impl Engine {
    /// As [`Engine::run`], with a result of a type of your own: it is stored as JSON, and a
    /// duplicate gets the stored result back as a value.
    ///
    /// `stored_type` names the type and its version, and is stored with the result. It is chosen
    /// by you and not derived from the Rust type, so that a refactoring changes nothing. Change it
    /// when the new type cannot read what was stored before.
    ///
    /// For a run that outlives its caller, spawn this in a task.
    ///
    /// ```
    /// use justonce_core::memory::MemoryStore;
    /// use justonce_core::{Engine, Key, ManualClock, Operation, Ran, Scope};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Debug, PartialEq, Serialize, Deserialize)]
    /// struct Receipt {
    ///     number: u64,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = Engine::new(MemoryStore::new(ManualClock::default()));
    /// let order = Operation::without_fingerprint(Scope::global(), Key::client("order-17")?);
    /// let pay = async |_| Ok(Receipt { number: 17 });
    /// let first = engine.run_json(&order, "receipt/1", pay).await?;
    /// assert_eq!(first, Ran::Executed(Receipt { number: 17 }));
    /// let again = engine.run_json::<Receipt, _, _>(&order, "receipt/1", async |_| unreachable!());
    /// assert_eq!(again.await?, Ran::Replayed(Receipt { number: 17 }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Engine::run`]; if the result cannot be written; and if a stored result is of another
    /// type or version, or was larger than [`MAX_BODY_BYTES`](crate::MAX_BODY_BYTES): the operation
    /// is done then, and only the first caller has the value.
    ///
    /// # Panics
    ///
    /// If the handler does, after the operation has been abandoned.
    pub async fn run_json<T, H, F>(
        &self,
        operation: &Operation,
        stored_type: &str,
        handler: H,
    ) -> Result<Ran<T>, RunJsonError>
    where
        T: Serialize + DeserializeOwned,
        H: FnOnce(Context) -> F,
        F: Future<Output = Result<T, HandlerError>>,
    {
        let read = |outcome: Outcome| read(&outcome, stored_type);
        // A name that cannot be stored must not come to light when the handler has run.
        typed(stored_type).build().map_err(RunJsonError::TypeName)?;
        let claim = match self.begin_or_wait(operation).await.map_err(RunJsonError::Run)? {
            Begun::Claimed(claim) => claim,
            Begun::Existing(existing) => return Ran::from(existing).try_map(read),
        };
        let handler = async |context: Context| match handler(context.clone()).await {
            Ok(value) => match write(&value, stored_type) {
                Ok(outcome) => (Ok(outcome), Some(Ok(value))),
                Err(reason) => {
                    context.explain(UNWRITABLE);
                    // It took effect, but its outcome is lost.
                    (Err(HandlerError::Unknown), Some(Err(reason)))
                }
            },
            Err(error) => (Err(error), None),
        };
        let (ran, value) = self.execute_with(operation, claim, handler).await;
        match (ran.map_err(RunJsonError::Run)?, value.flatten()) {
            (Ran::Executed(_), Some(Ok(value))) => Ok(Ran::Executed(value)),
            (Ran::Abandoned(_), Some(Err(reason))) => Err(RunJsonError::Unwritable(reason)),
            // Also where another owner took over meanwhile: its result counts.
            (ran, _) => ran.try_map(read),
        }
    }
}

/// An outcome with the name of its type.
fn typed(stored_type: &str) -> OutcomeBuilder {
    Outcome::builder().header(TYPE_HEADER, stored_type.to_owned())
}

fn write<T: Serialize>(value: &T, stored_type: &str) -> Result<Outcome, String> {
    let body = serde_json::to_vec(value).map_err(|error| error.to_string())?;
    typed(stored_type).body(body).build().map_err(|error| error.to_string())
}

fn read<T: DeserializeOwned>(outcome: &Outcome, stored_type: &str) -> Result<T, RunJsonError> {
    let unreadable = |reason: String| RunJsonError::Unreadable {
        expected: stored_type.to_owned(),
        stored: type_of(outcome),
        reason,
    };
    if type_of(outcome).as_deref() != Some(stored_type) {
        return Err(unreadable("it has another type or version".to_owned()));
    }
    match outcome.stored_body() {
        Body::TooLarge(size) => {
            Err(unreadable(format!("its {size} bytes were too large to store")))
        }
        Body::Whole(body) => {
            serde_json::from_slice(body).map_err(|error| unreadable(error.to_string()))
        }
    }
}

fn type_of(outcome: &Outcome) -> Option<String> {
    let header = outcome.headers().iter().find(|header| &*header.name == TYPE_HEADER)?;
    Some(String::from_utf8_lossy(&header.value).into_owned())
}

/// Why [`Engine::run_json`] returned no value.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum RunJsonError {
    /// The engine could not do its work.
    #[error(transparent)]
    Run(RunError),
    /// The name of the type is too long to be stored. Nothing was executed.
    #[error("nothing was executed, the name of the type is too long: {0}")]
    TypeName(#[source] OutcomeError),
    /// The handler ran and took effect, but its result cannot be stored as JSON, for this reason.
    /// Under `hold` the operation is unknown now, otherwise the next call runs it again.
    #[error("the operation was executed, but its result cannot be stored as JSON: {0}")]
    Unwritable(String),
    /// The operation is done, and nothing was executed now, but its stored result is not of the
    /// expected type.
    #[error(
        "the operation is done, but its stored result ({}) cannot be read as {expected}: {reason}",
        stored.as_deref().unwrap_or("no named type")
    )]
    Unreadable {
        /// The type and version that was asked for.
        expected: String,
        /// The type and version that is stored, if it was stored by [`Engine::run_json`].
        stored: Option<String>,
        /// What does not fit.
        reason: String,
    },
}
