//! Conditional operations: executed again only if the conditions have changed.

use justonce_core::ScopeBuilder;
use justonce_core::engine::Context;
use justonce_core::{Busy, Engine, Fingerprint, HandlerError, Key, Operation, Outcome, Policy};

use super::error::GuardError;
use super::last_write::{Judgement, WriteRequest, judge_changed};
use super::write::{Entities, WriteEnd, write};

/// Executes an operation again only if the stated conditions have changed since the last time.
///
/// What counts is the last time, not whether they ever were so: from A to B and back to A is
/// executed three times.
///
/// ```
/// use justonce_core::memory::MemoryStore;
/// use justonce_core::{Engine, Fingerprint, Key, ManualClock, Outcome, Scope};
/// use justonce_saga::{Conditional, IfChanged};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::new(MemoryStore::new(ManualClock::default()));
/// let sync = Conditional::new("publish-prices")?;
/// let shop = sync.key(Scope::builder().tenant("acme"), Key::client("shop-3")?)?;
/// let prices = |text: &str| {
///     Fingerprint::builder(shop.scope()).part("prices", text.as_bytes()).finish()
/// };
///
/// let ran = sync.run(&engine, &shop, prices("a=1"), async |_| Ok(Outcome::bytes("sent"))).await?;
/// assert_eq!(ran, IfChanged::Executed(Outcome::bytes("sent")));
///
/// let again = sync.run(&engine, &shop, prices("a=1"), async |_| unreachable!()).await?;
/// assert_eq!(again, IfChanged::Unchanged(Outcome::bytes("sent")));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Conditional(Entities);

/// What became of a conditional operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfChanged {
    /// The conditions had changed, or it is the first time, and it took effect.
    Executed(Outcome),
    /// They are those of the last time; this is its outcome.
    Unchanged(Outcome),
    /// They had changed, and the handler failed: the next call executes it again.
    Failed(HandlerError),
    /// It is being executed; nothing was executed here.
    Busy(Busy),
    /// It may have taken effect; the next call executes it again.
    Unfinished,
}

impl Conditional {
    /// Conditional operations with the durations of the default policy. The name is the operation
    /// in their scope.
    ///
    /// # Errors
    ///
    /// If the durations are not possible.
    pub fn new(name: &str) -> Result<Self, GuardError> {
        Self::with_policy(name, &Policy::default())
    }

    /// The same with other durations for the leases. What is kept of the last time has no end.
    ///
    /// # Errors
    ///
    /// If the durations are not possible.
    pub fn with_policy(name: &str, policy: &Policy) -> Result<Self, GuardError> {
        Entities::new(name, policy).map(Self)
    }

    /// The operation whose last time counts.
    ///
    /// # Errors
    ///
    /// If the scope is not possible.
    pub fn key(&self, scope: ScopeBuilder, key: Key) -> Result<Operation, GuardError> {
        self.0.entity(scope, key)
    }

    /// Executes the operation if the conditions are others than the last time.
    ///
    /// # Errors
    ///
    /// If the engine could not do its work, or the key is used for something else.
    ///
    /// # Panics
    ///
    /// If the handler does.
    pub async fn run<H, F>(
        &self,
        engine: &Engine,
        operation: &Operation,
        conditions: Fingerprint,
        handler: H,
    ) -> Result<IfChanged, GuardError>
    where
        H: FnOnce(Context) -> F,
        F: Future<Output = Result<Outcome, HandlerError>>,
    {
        let asked = WriteRequest::new(0, conditions);
        let came = write(engine, operation, asked, judge_changed, handler).await?;
        Ok(match came {
            WriteEnd::Executed(outcome) => IfChanged::Executed(outcome),
            WriteEnd::Judged(Judgement::Before(outcome)) => IfChanged::Unchanged(outcome),
            WriteEnd::Failed(error) => IfChanged::Failed(error),
            WriteEnd::Busy(busy) => IfChanged::Busy(busy),
            WriteEnd::Unfinished | WriteEnd::Judged(_) => IfChanged::Unfinished,
        })
    }
}
