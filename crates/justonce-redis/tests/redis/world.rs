//! Short words for tests that tell the store themselves what to do.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use justonce_core::store::Records;
use justonce_core::{
    Action, Answer, Claimed, Effect, Existing, Fence, Key, OnLapsed, Operation, Outcome, Owner,
    Policy, Scope, Step, StoreError, StoreErrorKind, StoreResult, Token,
};
use justonce_redis::RedisStore;
use tokio::time::{sleep, timeout};

/// When something that must happen counts as lost. It detects failures and paces nothing.
pub(crate) const LOST_AFTER: Duration = Duration::from_secs(30);

/// How long a caller waits before it tries again.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// An operation of this name under the default policy, with another lease and rule.
pub(crate) fn operation(key: &str, lease: Duration, on_lapsed: OnLapsed) -> Operation {
    let policy = Policy::builder().lease(lease).on_lapsed(on_lapsed).build().unwrap();
    Operation::without_fingerprint(Scope::global(), Key::client(key).unwrap()).with_policy(policy)
}

/// An operation of this name that runs again when it lapses.
pub(crate) fn plain(key: &str) -> Operation {
    operation(key, Duration::from_secs(30), OnLapsed::Rerun)
}

/// A begin by a new call.
pub(crate) fn begin_step(operation: &Operation) -> Step {
    static TOKENS: AtomicU64 = AtomicU64::new(1);
    let token = Token(TOKENS.fetch_add(1, Ordering::Relaxed).into());
    Step::begin(operation, Owner::new("test"), token)
}

pub(crate) async fn begin(store: &RedisStore, operation: &Operation) -> StoreResult<Answer> {
    store.apply(&begin_step(operation)).await
}

/// A begin that must claim.
pub(crate) async fn claim(store: &RedisStore, operation: &Operation) -> Claimed {
    match begin(store, operation).await.unwrap() {
        Answer::Claimed(claimed) => claimed,
        other => panic!("a begin of what is free was answered {other:?}"),
    }
}

pub(crate) async fn complete(
    store: &RedisStore,
    operation: &Operation,
    fence: Fence,
    outcome: &str,
) -> StoreResult<Answer> {
    let action = Action::Complete(fence, Outcome::bytes(outcome.to_owned()));
    store.apply(&Step::new(operation.id(), action)).await
}

/// Claims and completes.
pub(crate) async fn run(store: &RedisStore, operation: &Operation, outcome: &str) -> Fence {
    let fence = claim(store, operation).await.fence;
    assert_eq!(complete(store, operation, fence, outcome).await.unwrap(), Answer::Applied);
    fence
}

/// The outcome that a duplicate gets.
pub(crate) async fn replayed(store: &RedisStore, operation: &Operation) -> Option<Outcome> {
    begin(store, operation).await.unwrap().completed().cloned()
}

/// Repeats a call until it succeeds, as a caller does while servers come back. Every error on the
/// way must be one that passes.
pub(crate) async fn until_ok<T, F>(mut call: impl FnMut() -> F) -> T
where
    F: Future<Output = StoreResult<T>>,
{
    let trying = async {
        loop {
            match call().await {
                Ok(value) => return value,
                Err(error) => assert_passing(&error),
            }
            sleep(TRY_AGAIN_AFTER).await; // tidy: allow-sleep: a server gives no signal
        }
    };
    timeout(LOST_AFTER, trying).await.expect("the store does not come back")
}

pub(crate) fn assert_passing(error: &StoreError) {
    assert!(error.is_passing(), "{error}: {error:?}");
}

/// Whether an error says that the step was certainly not applied.
pub(crate) fn is_not_applied(error: &StoreError, kind: StoreErrorKind) -> bool {
    error.effect() == Effect::NotApplied && error.kind() == kind
}

/// Whether a begin heard that somebody else is running the operation.
pub(crate) fn is_busy(answer: &Answer) -> bool {
    matches!(answer, Answer::Existing(Existing::Busy(_)))
}
