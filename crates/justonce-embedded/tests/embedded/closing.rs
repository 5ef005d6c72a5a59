//! A store is closed while callers are at work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use justonce_core::store::Records;
use justonce_core::{
    Action, Answer, Entry, Key, OnLapsed, Operation, Outcome, Owner, Policy, Scope, State, Step,
    StoreErrorKind, Token,
};
use justonce_embedded::EmbeddedStore;

const ROUNDS: u32 = 8;
const CALLERS: u32 = 8;
/// A round more is closed after so many more claims.
const CLAIMS: u32 = 17;

fn operation(caller: u32, number: u32) -> Operation {
    let rule = match number % 3 {
        0 => OnLapsed::Rerun,
        1 => OnLapsed::Hold,
        _ => OnLapsed::Resume,
    };
    let policy = Policy::builder().on_lapsed(rule).build().unwrap();
    let key = Key::client(format!("{caller}-{number}")).unwrap();
    Operation::without_fingerprint(Scope::global(), key).with_policy(policy)
}

/// Claims, and completes every other one, until the store is closed. Returns what was answered.
async fn call(store: Arc<EmbeddedStore>, caller: u32, claimed: Arc<AtomicU32>) -> Vec<bool> {
    let refused = StoreErrorKind::Stopped;
    let mut completed = Vec::new();
    for number in 0.. {
        let operation = operation(caller, number);
        let begin = Step::begin(&operation, Owner::new("a"), Token(number.into()));
        let claim = match store.apply(&begin).await {
            Ok(Answer::Claimed(claim)) => claim,
            Err(error) if error.kind() == refused => break,
            other => panic!("{other:?}"),
        };
        completed.push(false);
        claimed.fetch_add(1, Ordering::Relaxed);
        if number % 2 == 0 {
            let complete = Action::Complete(claim.fence, Outcome::bytes("done"));
            match store.apply(&Step::new(operation.id(), complete)).await {
                Ok(Answer::Applied) => *completed.last_mut().unwrap() = true,
                Err(error) if error.kind() == refused => break,
                other => panic!("{other:?}"),
            }
        }
    }
    completed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_answered_before_the_store_was_closed_is_there_afterwards() {
    for round in 0..ROUNDS {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(EmbeddedStore::open(directory.path()).unwrap());
        let claimed = Arc::<AtomicU32>::default();
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| tokio::spawn(call(store.clone(), caller, claimed.clone())))
            .collect();
        while claimed.load(Ordering::Relaxed) < round * CLAIMS {
            tokio::task::yield_now().await;
        }
        let closing = store.clone();
        tokio::task::spawn_blocking(move || closing.close().unwrap()).await.unwrap();
        let mut answered = Vec::new();
        for caller in callers {
            answered.push(caller.await.unwrap());
        }
        drop(store);
        let store = EmbeddedStore::open(directory.path()).unwrap();
        for (caller, completed) in (0..).zip(answered) {
            for (number, is_completed) in (0..).zip(completed) {
                let found = store.get(&operation(caller, number).id()).await.unwrap();
                let Some(Entry::Record(record)) = found.map(|stored| stored.entry) else {
                    panic!("round {round}: claim {number} of caller {caller} is not there");
                };
                assert!(
                    !is_completed || matches!(record.state, State::Completed(_)),
                    "round {round}: {record:?}"
                );
            }
        }
    }
}
