//! What a saga costs: on the embedded store, four durable commits for three steps.

use std::path::Path;

use justonce_core::Engine;
use justonce_core::{Key, Scope};
use justonce_embedded::EmbeddedStore;
use justonce_saga::{Call, Saga, SagaEnd, SagaRan, SagaStep};

/// How many batches were written: the store keeps that number in a file.
fn batches(directory: &Path) -> u64 {
    let bytes = std::fs::read(directory.join("watermark")).unwrap();
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

#[tokio::test]
async fn a_saga_of_three_steps_costs_four_commits_and_a_duplicate_none() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::new(EmbeddedStore::open(directory.path()).unwrap());
    let step = |name: &str| {
        SagaStep::new(name, async |_: Call<u64>| Ok(())).undo(async |_: Call<u64>| Ok(()))
    };
    let saga = Saga::builder("order").step(step("a")).step(step("b")).step(step("c"));
    let saga = saga.build().unwrap();
    let key = Key::client("order-17").unwrap();
    let operation = saga.operation(Scope::builder(), key, &17).unwrap();
    let before = batches(directory.path());
    let ran = saga.run(&engine, &operation).await.unwrap();
    assert_eq!(ran, SagaRan::Ended(SagaEnd::Done(17)));
    assert_eq!(batches(directory.path()) - before, 4);
    let again = saga.run(&engine, &operation).await.unwrap();
    assert_eq!(again, SagaRan::Replayed(SagaEnd::Done(17)));
    assert_eq!(batches(directory.path()) - before, 4, "the duplicate wrote");
}
