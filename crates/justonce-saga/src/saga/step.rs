//! One step of a saga: what it does, what it saves, and how it is undone.

use std::error::Error;
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use justonce_core::BackOff;

use super::call::Call;

/// What a step does to the context once it took effect.
pub(super) type Save<C> = Box<dyn FnOnce(&mut C) + Send>;
/// What is called, and what it says.
type Calls<C, T> = Arc<dyn Fn(Call<C>) -> CallFuture<T> + Send + Sync>;
type CallFuture<T> = BoxFuture<'static, Result<T, StepError>>;

/// Why a step or a compensation failed.
///
/// Any error turns into [`StepError::Passing`], so `?` works in steps: an error of a call says as a
/// rule nothing about whether it took effect. A step is repeated with the same key, so unlike
/// [`HandlerError::Retryable`](justonce_core::HandlerError::Retryable) of a handler, this does
/// **not** say that it had no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepError {
    /// It may have taken effect, and may be tried again.
    Passing(String),
    /// It certainly did not take effect, and never will. A compensation that says so is stuck.
    Permanent(String),
}

impl StepError {
    /// It may have taken effect, and may be tried again.
    #[must_use]
    pub fn passing(why: impl fmt::Display) -> Self {
        Self::Passing(why.to_string())
    }

    /// It certainly did not take effect, and never will.
    #[must_use]
    pub fn permanent(why: impl fmt::Display) -> Self {
        Self::Permanent(why.to_string())
    }
}

impl<E: Error> From<E> for StepError {
    fn from(error: E) -> Self {
        Self::passing(error)
    }
}

/// How often a step is tried before it is given up, and the pauses in between. The count is of one
/// claim: a takeover starts anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tries {
    /// How often; at least once.
    pub most: u32,
    /// The pauses.
    pub back_off: BackOff,
}

impl Default for Tries {
    /// Six times, over about ten seconds.
    fn default() -> Self {
        Self { most: 6, back_off: BackOff::DEFAULT }
    }
}

/// One step of a saga.
///
/// ```
/// use justonce_saga::{Call, SagaStep, StepError, Tries};
///
/// #[derive(Clone, serde::Serialize, serde::Deserialize)]
/// struct Order { cents: u64, payment: Option<u64> }
///
/// // The default: no compensation, nothing to save.
/// let notify = SagaStep::new("notify", async |_: Call<Order>| Ok::<_, StepError>(()));
///
/// // Customised.
/// let charge = SagaStep::new("charge", async |call: Call<Order>| {
///         Ok::<u64, StepError>(call.context().cents)
///     })
///     .saves(|order: &mut Order, payment| order.payment = Some(payment))
///     .undo(async |_call| Ok(()))
///     .tries(Tries { most: 3, ..Tries::default() });
/// ```
pub struct SagaStep<C> {
    pub(super) name: String,
    pub(super) run: Calls<C, Save<C>>,
    pub(super) undo: Option<Calls<C, ()>>,
    pub(super) tries: Tries,
    pub(super) undo_tries: Tries,
    pub(super) timeout: Option<Duration>,
}

/// A step that says what of its result goes into the context.
pub struct Unsaved<C, T> {
    name: String,
    run: Calls<C, T>,
}

impl<C: Send + Sync + 'static> SagaStep<C> {
    /// A step by name.
    #[expect(clippy::new_ret_no_self, reason = "a step is whole once it says what it saves")]
    pub fn new<T, R, F>(name: impl Into<String>, run: R) -> Unsaved<C, T>
    where
        T: Send + 'static,
        R: Fn(Call<C>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, StepError>> + Send + 'static,
    {
        Unsaved { name: name.into(), run: Arc::new(move |call| run(call).boxed()) }
    }

    /// How it is undone. It is called with the context as it was saved, also when the step was
    /// given up and it is not known whether it took effect: then there may be nothing to undo, and
    /// that is fine.
    #[must_use]
    pub fn undo<R, F>(mut self, undo: R) -> Self
    where
        R: Fn(Call<C>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), StepError>> + Send + 'static,
    {
        self.undo = Some(Arc::new(move |call| undo(call).boxed()));
        self
    }

    /// How often it is tried. Default: [`Tries::default`].
    #[must_use]
    pub const fn tries(mut self, tries: Tries) -> Self {
        self.tries = tries;
        self
    }

    /// How often its compensation is tried before the saga is stuck. Default: [`Tries::default`].
    #[must_use]
    pub const fn undo_tries(mut self, tries: Tries) -> Self {
        self.undo_tries = tries;
        self
    }

    /// How long one call of it, or of its compensation, may take. Then it is dropped where it
    /// waits, and counts as [`StepError::Passing`]: it may have taken effect. Default: that of the
    /// saga, [`SagaBuilder::step_timeout`](crate::SagaBuilder::step_timeout).
    ///
    /// ```
    /// use justonce_saga::{Call, SagaStep, StepError};
    /// use std::time::Duration;
    ///
    /// let slow = SagaStep::new("print", async |_: Call<u64>| Ok::<_, StepError>(()));
    /// let slow = SagaStep::from(slow).timeout(Duration::from_secs(300));
    /// ```
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Calls its compensation; one that has none has nothing to do.
    pub(super) fn call_undo(&self, call: Call<C>) -> CallFuture<()> {
        self.undo.as_ref().map_or_else(|| ready(Ok(())).boxed(), |undo| undo(call))
    }
}

impl<C: Send + Sync + 'static, T: Send + 'static> Unsaved<C, T> {
    /// What of its result goes into the context, and is saved with it.
    #[must_use]
    pub fn saves<S>(self, save: S) -> SagaStep<C>
    where
        S: Fn(&mut C, T) + Send + Sync + 'static,
    {
        let (run, save) = (self.run, Arc::new(save));
        let run: Calls<C, Save<C>> = Arc::new(move |call| {
            let (running, save) = (run(call), Arc::clone(&save));
            async move {
                let result = running.await?;
                let save: Save<C> = Box::new(move |context| save(context, result));
                Ok(save)
            }
            .boxed()
        });
        let tries = Tries::default();
        SagaStep { name: self.name, run, undo: None, tries, undo_tries: tries, timeout: None }
    }

    /// See [`SagaStep::undo`]. Nothing of the result is saved.
    #[must_use]
    pub fn undo<R, F>(self, undo: R) -> SagaStep<C>
    where
        R: Fn(Call<C>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), StepError>> + Send + 'static,
    {
        SagaStep::from(self).undo(undo)
    }
}

impl<C: Send + Sync + 'static, T: Send + 'static> From<Unsaved<C, T>> for SagaStep<C> {
    fn from(step: Unsaved<C, T>) -> Self {
        step.saves(|_, _| ())
    }
}

impl<C> fmt::Debug for SagaStep<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaStep").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<C, T> fmt::Debug for Unsaved<C, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unsaved").field("name", &self.name).finish_non_exhaustive()
    }
}
