//! A power cut while the storage engine syncs its journal: what the engine was about to write is
//! there in parts. The write-ahead log has all of it.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use justonce_core::engine::Context;
use justonce_core::{
    Engine, Entropy, HandlerError, Key, OnLapsed, Operation, Outcome, Policy, Ran, Scope,
};
use justonce_embedded::{EmbeddedStore, RowName, RowWrites};

/// So large that parts of a batch can be lost without its beginning and its end.
const ROW_BYTES: usize = 100_000;
const PAGE_BYTES: usize = 4096;

fn operation(key: &str) -> Operation {
    let policy = Policy::builder().on_lapsed(OnLapsed::Hold).build().unwrap();
    Operation::without_fingerprint(Scope::global(), Key::client(key).unwrap()).with_policy(policy)
}

fn row() -> RowName {
    RowName::new("rooms", "7").unwrap()
}

/// What is in the row; it does not compress, so it lies in the journal as it is.
fn value(number: u64) -> Vec<u8> {
    let entropy = Entropy::seeded(number);
    (0..ROW_BYTES / 8).flat_map(|_| entropy.next_u64().to_le_bytes()).collect()
}

/// Loses pages in the middle of a row.
fn tear(directory: &Path, number: u64, pages: usize) {
    let journal = directory.join("records/0.jnl");
    let bytes = std::fs::read(&journal).unwrap();
    let value = value(number);
    let part = &value[8 * PAGE_BYTES..][..64];
    let at = bytes.windows(part.len()).position(|bytes| bytes == part).unwrap();
    let page = at.next_multiple_of(PAGE_BYTES);
    let file = std::fs::OpenOptions::new().write(true).open(&journal).unwrap();
    file.write_all_at(&vec![0; pages * PAGE_BYTES], page as u64).unwrap();
}

/// Replaces a row and ends the operation, then closes the store: the engine has it in its journal.
async fn write(directory: &Path, key: &str, number: u64) {
    let store = Arc::new(EmbeddedStore::open(directory).unwrap());
    let engine = Engine::builder_shared(store.clone()).build();
    let end = async |context: Context| {
        let write = |rows: &mut RowWrites<'_>| {
            rows.put(row(), value(number));
            Ok(Outcome::bytes(key.to_owned()))
        };
        let ended: Result<Outcome, HandlerError> = store.outcome_with(&context, write).await;
        ended
    };
    let ran = engine.run(&operation(key), end).await.unwrap();
    assert!(matches!(ran, Ran::Executed(_)));
}

async fn assert_all_there(directory: &Path) {
    let store = Arc::new(EmbeddedStore::open(directory).unwrap());
    let engine = Engine::builder_shared(store.clone()).build();
    for key in ["first", "second"] {
        let ran = engine.run(&operation(key), async |_| panic!("it ran before")).await.unwrap();
        assert_eq!(ran, Ran::Replayed(Outcome::bytes(key)));
    }
    assert_eq!(store.row(&row()).await.unwrap(), Some(value(2)));
}

#[tokio::test]
async fn a_batch_of_the_engine_that_was_torn_is_written_again_from_the_log() {
    for lost_pages in [1, 10] {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "first", 1).await;
        write(directory.path(), "second", 2).await;
        tear(directory.path(), 2, lost_pages);
        assert_all_there(directory.path()).await;
        assert_all_there(directory.path()).await;
    }
}

#[tokio::test]
async fn a_torn_batch_that_the_log_does_not_have_either_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "first", 1).await;
    write(directory.path(), "second", 2).await;
    tear(directory.path(), 1, 1);
    let journal = directory.path().join("records/0.jnl");
    let bytes = std::fs::read(&journal).unwrap();
    // The log has gone on to other batches.
    for file in std::fs::read_dir(directory.path().join("wal")).unwrap() {
        std::fs::write(file.unwrap().path(), "").unwrap();
    }
    let refused = EmbeddedStore::open(directory.path()).unwrap_err().to_string();
    assert!(refused.contains("missing"), "{refused}");
    // Nothing was changed.
    let again = EmbeddedStore::open(directory.path()).unwrap_err().to_string();
    assert_eq!(refused, again);
    assert!(std::fs::read(&journal).unwrap() == bytes);
}
