//! What was erased or expired stays gone, also while the storage engine still has it.

use std::time::Duration;

use justonce_core::store::Records;
use justonce_core::{
    Action, AfterRetention, Answer, Engine, Fence, Key, OnLapsed, Operation, Outcome, Owner,
    Policy, Scope, Step, Token,
};
use justonce_embedded::EmbeddedStore;

fn operation(late_arrivals_are_refused: bool) -> Operation {
    let mut policy = Policy::builder().on_lapsed(OnLapsed::Rerun);
    if late_arrivals_are_refused {
        policy = policy.after_retention(AfterRetention::Refuse(Duration::from_secs(3600)));
    }
    Operation::without_fingerprint(Scope::global(), Key::client("order").unwrap())
        .with_policy(policy.build().unwrap())
}

async fn fence_of(store: &EmbeddedStore, operation: &Operation) -> Fence {
    store.get(&operation.id()).await.unwrap().unwrap().entry.fence()
}

async fn applied(store: &EmbeddedStore, operation: &Operation, action: Action) {
    let answer = store.apply(&Step::new(operation.id(), action)).await.unwrap();
    assert_eq!(answer, Answer::Applied);
}

async fn claimed(store: &EmbeddedStore, operation: &Operation, call: u128) -> Fence {
    let begin = Step::begin(operation, Owner::new("a"), Token(call));
    match store.apply(&begin).await.unwrap() {
        Answer::Claimed(claimed) => claimed.fence,
        other => panic!("call {call} of what is gone: {other:?}"),
    }
}

#[tokio::test]
async fn what_was_given_up_does_not_come_back_while_its_removal_is_on_its_way() {
    for (refused, expire_first) in [(false, false), (false, true), (true, true)] {
        let directory = tempfile::tempdir().unwrap();
        let order = operation(refused);
        let engine = Engine::new(EmbeddedStore::open(directory.path()).unwrap());
        engine.run(&order, async |_| Ok(Outcome::bytes("old"))).await.unwrap();
        drop(engine);
        // The storage engine has the outcome now, and the table in memory has not.
        let store = EmbeddedStore::open(directory.path()).unwrap();
        let fence = fence_of(&store, &order).await;
        if expire_first {
            applied(&store, &order, Action::Expire(fence)).await;
        }
        if !expire_first || refused {
            applied(&store, &order, Action::Erase(fence)).await;
        }
        for call in 0..3 {
            let fence = claimed(&store, &order, call).await;
            applied(&store, &order, Action::Release(fence)).await;
            assert_eq!(store.get(&order.id()).await.unwrap(), None);
        }
        drop(store);
        let store = EmbeddedStore::open(directory.path()).unwrap();
        assert_eq!(store.get(&order.id()).await.unwrap(), None);
        claimed(&store, &order, 4).await;
    }
}
