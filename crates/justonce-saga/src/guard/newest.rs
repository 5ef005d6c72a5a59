//! Late arrivals: the newest write counts.

use justonce_core::engine::Context;
use justonce_core::{Busy, Engine, Fingerprint, HandlerError, Key, Operation, Outcome, Policy};
use justonce_core::{ScopeBuilder, Timestamp};

use super::error::GuardError;
use super::last_write::{Judgement, WriteRequest, judge_newest};
use super::write::{Entities, WriteEnd, write};

/// Refuses writes that arrive late: for each entity the write with the highest version counts,
/// whichever process it reaches, and an older one never follows a newer one.
///
/// A version is a number that grows with every change of the entity, or the time at which the
/// change was made ([`Guard::at`]).
///
/// A write is *accepted* before it is executed: from then on nothing older gets in, also if it
/// fails or its process dies. Writes of one entity are executed one at a time.
///
/// ```
/// use justonce_core::memory::MemoryStore;
/// use justonce_core::{Engine, Fingerprint, Key, ManualClock, Outcome, Scope};
/// use justonce_saga::{Guard, Written};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::new(MemoryStore::new(ManualClock::default()));
/// let guard = Guard::new("set-address")?;
/// let customer = guard.entity(Scope::builder().tenant("acme"), Key::client("customer-7")?)?;
/// let content = |text: &str| {
///     Fingerprint::builder(customer.scope()).part("address", text.as_bytes()).finish()
/// };
///
/// let new = content("Rue de la Paix 1");
/// let written = guard.write(&engine, &customer, 2, new, async |_| Ok(Outcome::empty())).await?;
/// assert_eq!(written, Written::Executed(Outcome::empty()));
///
/// // The change before that one was held up on its way.
/// let old = content("Old Street 5");
/// let late = guard.write(&engine, &customer, 1, old, async |_| unreachable!()).await?;
/// assert_eq!(late, Written::Late);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Guard(Entities);

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was the newest, and took effect.
    Executed(Outcome),
    /// This very write took effect before; this is its outcome.
    Replayed(Outcome),
    /// A newer one was accepted before: nothing was executed. Callers that want late writes ignored
    /// takes this for a success.
    Late,
    /// The same version was accepted before with another content: nothing was executed. Two
    /// writers give out the same versions.
    Conflict,
    /// It was accepted, and its handler failed. Its retry is executed; nothing older is.
    Failed(HandlerError),
    /// Another write of this entity is being executed; nothing was executed.
    Busy(Busy),
    /// It was accepted, and may have taken effect. Its retry is executed again.
    Unfinished,
}

impl Guard {
    /// A guard with the durations of the default policy. Its name is the operation in the scope
    /// of its entities.
    ///
    /// # Errors
    ///
    /// If the durations are not possible.
    pub fn new(name: &str) -> Result<Self, GuardError> {
        Self::with_policy(name, &Policy::default())
    }

    /// The same with other durations for its leases. What is kept of an entity has no end.
    ///
    /// # Errors
    ///
    /// If the durations are not possible.
    pub fn with_policy(name: &str, policy: &Policy) -> Result<Self, GuardError> {
        Entities::new(name, policy).map(Self)
    }

    /// An entity: what is written.
    ///
    /// # Errors
    ///
    /// If the scope is not possible.
    pub fn entity(&self, scope: ScopeBuilder, key: Key) -> Result<Operation, GuardError> {
        self.0.entity(scope, key)
    }

    /// Executes a write if it is the newest.
    ///
    /// The context has the fence: where the entity is written to can refuse an owner whose lease
    /// has lapsed in the middle.
    ///
    /// # Errors
    ///
    /// If the engine could not do its work, or the entity's key is used for something else.
    ///
    /// # Panics
    ///
    /// If the handler does; the write stays accepted.
    pub async fn write<H, F>(
        &self,
        engine: &Engine,
        entity: &Operation,
        version: u64,
        content: Fingerprint,
        handler: H,
    ) -> Result<Written, GuardError>
    where
        H: FnOnce(Context) -> F,
        F: Future<Output = Result<Outcome, HandlerError>>,
    {
        let asked = WriteRequest::new(version, content);
        let came = write(engine, entity, asked, judge_newest, handler).await?;
        Ok(match came {
            WriteEnd::Executed(outcome) => Written::Executed(outcome),
            WriteEnd::Failed(error) => Written::Failed(error),
            WriteEnd::Judged(Judgement::Before(outcome)) => Written::Replayed(outcome),
            WriteEnd::Judged(Judgement::Late) => Written::Late,
            WriteEnd::Judged(Judgement::Conflict | Judgement::Execute) => Written::Conflict,
            WriteEnd::Busy(busy) => Written::Busy(busy),
            WriteEnd::Unfinished => Written::Unfinished,
        })
    }

    /// A time as a version.
    #[must_use]
    pub const fn at(time: Timestamp) -> u64 {
        time.as_millis()
    }
}
