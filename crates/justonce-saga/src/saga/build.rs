//! A saga, declared once.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::{Checkpoint, Entropy, Fingerprint, Key, Operation, Policy, ScopeBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{InvalidSaga, SagaError};
use super::log::{Log, PlannedStep};
use super::step::SagaStep;
use crate::endless::endless;
use crate::phases::{DEFAULT_TIMEOUT, MAX_NAME_BYTES, MAX_PHASES};

/// The name of the checkpoint before the first step.
pub(super) const ASKED: &str = "asked";

/// A saga: steps with compensations, and a context that is saved after each. Cheap to clone.
///
/// It ends in one of two ways, and both are replayed for duplicates: all steps are done, or all
/// that was done is undone. Meanwhile it may be stuck, where something keeps failing that cannot be
/// given up; it can be seen, and goes on whenever it is asked for again.
///
/// ```
/// use justonce_core::memory::MemoryStore;
/// use justonce_core::{Engine, Key, ManualClock, Scope};
/// use justonce_saga::{Call, Saga, SagaEnd, SagaRan, SagaStep, StepError};
///
/// #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
/// struct Order { cents: u64, payment: Option<u64> }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let saga = Saga::builder("order")
///     .step(SagaStep::new("reserve", async |_: Call<Order>| Ok(()))
///         .undo(async |_call| Ok(())))
///     .step(SagaStep::new("charge", async |call: Call<Order>| {
///             // The bank recognises a repetition by the key.
///             let _key = call.key();
///             if call.context().cents > 1000 {
///                 return Err(StepError::permanent("declined"));
///             }
///             Ok(17)
///         })
///         .saves(|order: &mut Order, payment| order.payment = Some(payment))
///         .undo(async |_call| Ok(())))
///     .build()?;
///
/// let engine = Engine::new(MemoryStore::new(ManualClock::default()));
/// let order = Order { cents: 500, payment: None };
/// let scope = Scope::builder().tenant("acme");
/// let operation = saga.operation(scope, Key::client("order-17")?, &order)?;
/// let ran = saga.run(&engine, &operation).await?;
/// let order = Order { cents: 500, payment: Some(17) };
/// assert_eq!(ran, SagaRan::Ended(SagaEnd::Done(order.clone())));
///
/// // A duplicate gets the same.
/// let again = saga.run(&engine, &operation).await?;
/// assert_eq!(again, SagaRan::Replayed(SagaEnd::Done(order)));
/// # Ok(())
/// # }
/// ```
pub struct Saga<C>(pub(super) Arc<Declared<C>>);

/// What a saga is made of.
pub(super) struct Declared<C> {
    pub(super) name: String,
    pub(super) plan: Vec<PlannedStep>,
    pub(super) steps: Vec<SagaStep<C>>,
    pub(super) policy: Arc<Policy>,
    pub(super) entropy: Entropy,
    pub(super) step_timeout: Duration,
}

impl<C> Clone for Saga<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C> Saga<C>
where
    C: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
{
    /// Starts a saga. Its name is the operation in the scope of everything that it runs.
    pub fn builder(name: impl Into<String>) -> SagaBuilder<C> {
        SagaBuilder {
            name: name.into(),
            steps: Vec::new(),
            policy: Policy::default(),
            entropy: Entropy::from_system(),
            step_timeout: DEFAULT_TIMEOUT,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The operation that runs this saga once for this key: its scope is the given one with the
    /// saga's name as the operation, its fingerprint is that of the context, and the context is
    /// stored with the claim.
    ///
    /// # Errors
    ///
    /// If the scope is not possible, or the context cannot be saved.
    pub fn operation(
        &self,
        scope: ScopeBuilder,
        key: Key,
        context: &C,
    ) -> Result<Operation, SagaError> {
        let scope = scope.operation(self.name()).build().map_err(SagaError::Scope)?;
        let asked =
            serde_json::to_vec(context).map_err(|error| SagaError::Unsavable(error.to_string()))?;
        let log = Log::new(self.name(), &self.0.plan, context)?;
        let point = Checkpoint::new(ASKED, log.fitting_data(0)?);
        let point = point.map_err(|error| SagaError::Unsavable(error.to_string()))?;
        let fingerprint = Fingerprint::of_json(&scope, &asked);
        Ok(Operation::new(scope, key, fingerprint)
            .with_policy(Arc::clone(&self.0.policy))
            .starting_from(point))
    }

    /// The operation of a saga that was begun before, by another program.
    pub(crate) fn resumed(&self, operation: Operation) -> Operation {
        operation.with_policy(Arc::clone(&self.0.policy))
    }
}

impl<C> fmt::Debug for Saga<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saga").field("name", &self.0.name).field("plan", &self.0.plan).finish()
    }
}

/// Collects the parts of a [`Saga`].
#[must_use = "a builder does nothing until `build`"]
pub struct SagaBuilder<C> {
    name: String,
    /// Each step with whether it runs beside the one before.
    steps: Vec<(SagaStep<C>, bool)>,
    policy: Policy,
    entropy: Entropy,
    step_timeout: Duration,
}

impl<C> SagaBuilder<C> {
    /// The next step. It runs when all before it are done.
    pub fn step(mut self, step: impl Into<SagaStep<C>>) -> Self {
        self.steps.push((step.into(), false));
        self
    }

    /// A step that does not depend on the one before and runs beside it. Both need compensations.
    pub fn beside(mut self, step: impl Into<SagaStep<C>>) -> Self {
        self.steps.push((step.into(), true));
        self
    }

    /// The durations: lease, cap, retention and what comes after it. Default: those of
    /// [`Policy::default`]. What a policy says about lapsed leases, failures and attempts does not
    /// count: a saga is always resumed, and no limit ends it half done.
    pub const fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The source of randomness, for the pauses between tries. Default: seeded by the system.
    pub fn entropy(mut self, entropy: Entropy) -> Self {
        self.entropy = entropy;
        self
    }

    /// How long one call of a step or compensation may take, unless the step says otherwise
    /// ([`SagaStep::timeout`]). Default: one minute.
    pub const fn step_timeout(mut self, timeout: Duration) -> Self {
        self.step_timeout = timeout;
        self
    }

    /// Checks the whole.
    ///
    /// # Errors
    ///
    /// If a name cannot be used, or a step that runs beside others has no compensation.
    pub fn build(self) -> Result<Saga<C>, InvalidSaga> {
        if !(1..=MAX_PHASES).contains(&self.steps.len()) {
            return Err(InvalidSaga::Steps(self.steps.len()));
        }
        let plan = planned(&self.steps)?;
        let mut seen = HashSet::new();
        let unfit = |name: &str| name.is_empty() || name.len() > MAX_NAME_BYTES;
        let wrong = plan.iter().find(|step| unfit(&step.name) || !seen.insert(&step.name));
        if let Some(step) = wrong {
            return Err(InvalidSaga::Name(step.name.clone()));
        }
        if unfit(&self.name) {
            return Err(InvalidSaga::Name(self.name));
        }
        let policy = endless(&self.policy).map_err(InvalidSaga::Policy)?;
        Ok(Saga(Arc::new(Declared {
            name: self.name,
            plan,
            steps: self.steps.into_iter().map(|(step, _)| step).collect(),
            policy: Arc::new(policy),
            entropy: self.entropy,
            step_timeout: self.step_timeout,
        })))
    }
}

fn planned<C>(steps: &[(SagaStep<C>, bool)]) -> Result<Vec<PlannedStep>, InvalidSaga> {
    let mut plan: Vec<PlannedStep> = Vec::with_capacity(steps.len());
    for (step, beside) in steps {
        let group = match (plan.last(), beside) {
            (None, true) => return Err(InvalidSaga::Beside(step.name.clone())),
            (None, false) => 0,
            (Some(before), true) => before.group,
            (Some(before), false) => before.group + 1,
        };
        plan.push(PlannedStep { name: step.name.clone(), group, undo: step.undo.is_some() });
    }
    let group_size = |group| plan.iter().filter(|step| step.group == group).count();
    let without_undo = plan.iter().find(|step| !step.undo && group_size(step.group) > 1);
    match without_undo {
        Some(step) => Err(InvalidSaga::NoCompensation(step.name.clone())),
        None => Ok(plan),
    }
}

impl<C> fmt::Debug for SagaBuilder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
