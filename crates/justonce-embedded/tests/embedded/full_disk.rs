//! A full disk: the store stops with a clear message, replays what it has, refuses what would
//! write, and after a restart with room again nothing acknowledged is lost.
//!
//! The disk is a small file system in memory, mounted in a namespace of its own.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use justonce_core::engine::Begun;
use justonce_core::store::Maintenance;
use justonce_core::{
    Effect, Engine, Entropy, Key, OnLapsed, Operation, Outcome, Policy, Ran, RunError, Scope,
    StoreErrorKind,
};
use justonce_embedded::EmbeddedStore;

/// Names the mounted directory, and makes this binary the process that works there.
const WORKER_ENV: &str = "JUSTONCE_FULL_DISK_WORKER";
/// Room for a few hundred outcomes.
const SMALL: &str = "size=6m";
const LARGE: &str = "size=200m";
/// The store's directory on that disk, and a file of others.
const STORE: &str = "store";
const OTHERS: &str = "others";

#[test]
fn a_full_disk_stops_the_store_and_loses_nothing() {
    if let Ok(directory) = std::env::var(WORKER_ENV) {
        return work(directory.as_ref(), 0);
    }
    on_a_small_disk("a_full_disk_stops_the_store_and_loses_nothing", SMALL);
}

/// The log has its files already: it is the storage engine that finds no room, in its own threads.
#[test]
fn a_disk_that_others_fill_stops_the_store_and_loses_nothing() {
    if let Ok(directory) = std::env::var(WORKER_ENV) {
        return work(directory.as_ref(), 2_000);
    }
    on_a_small_disk("a_disk_that_others_fill_stops_the_store_and_loses_nothing", LARGE);
}

/// Runs this test once more, in a process whose directory is a small disk.
fn on_a_small_disk(test: &str, size: &str) {
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o {size} tmpfs \"${WORKER_ENV}\" && exec \"$0\" --exact \
         full_disk::{test} --nocapture"
    );
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(WORKER_ENV, directory.path())
        .output()
        .unwrap_or_else(|error| panic!("this test needs `unshare` (package util-linux): {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "the worker failed; it needs root or user namespaces to mount a file system.\n{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("everything was found again"), "{said}");
}

/// Others fill the disk after so many operations; with none, the store does.
fn work(directory: &Path, others_after: u64) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let acknowledged = runtime.block_on(fill(directory, others_after));
    assert!(acknowledged > 10, "only {acknowledged} operations fitted");
    if others_after > 0 {
        std::fs::remove_file(directory.join(OTHERS)).unwrap();
    }
    let room = Command::new("mount")
        .args(["-o", &format!("remount,{LARGE}")])
        .arg(directory)
        .status()
        .unwrap();
    assert!(room.success());
    runtime.block_on(verify(directory, acknowledged));
    println!("everything was found again: {acknowledged} outcomes");
}

/// Writes until there is no room.
fn fill_up(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    while file.write_all(&[7; 4096]).is_ok() {}
}

fn operation(number: u64) -> Operation {
    let policy = Policy::builder().on_lapsed(OnLapsed::Hold).build().unwrap();
    Operation::without_fingerprint(Scope::global(), Key::client(format!("order-{number}")).unwrap())
        .with_policy(policy)
}

/// Bytes that do not compress, the same for the same number.
fn outcome(number: u64) -> Outcome {
    let entropy = Entropy::seeded(number);
    Outcome::bytes((0..2000).flat_map(|_| entropy.next_u64().to_le_bytes()).collect::<Vec<u8>>())
}

/// Runs operations until the disk is full; returns how many were acknowledged.
async fn fill(directory: &Path, others_after: u64) -> u64 {
    let store = std::sync::Arc::new(EmbeddedStore::open(directory.join(STORE)).unwrap());
    let engine = Engine::builder_shared(store.clone()).build();
    let mut number = 0;
    let error = loop {
        if number == others_after && number > 0 {
            fill_up(&directory.join(OTHERS));
        }
        let reply = outcome(number);
        match engine.run(&operation(number), async |_| Ok(reply)).await {
            Ok(ran) => assert!(matches!(ran, Ran::Executed(_))),
            Err(error) => break error,
        }
        number += 1;
    };
    println!("stopped: {error}");
    let (RunError::Store(source) | RunError::NotStored { source, .. }) = &error else {
        panic!("{error}");
    };
    assert_eq!(source.kind(), StoreErrorKind::Stopped);
    if others_after == 0 {
        assert_eq!(source.effect(), Effect::MayHaveBeenApplied);
    }
    // The engine's own threads tell the reason to the log only.
    let reasons = ["No space left", "full disk"];
    assert!(reasons.iter().any(|reason| source.to_string().contains(reason)), "{source}");

    // It says so to those who ask, refuses what would write, and replays what it has.
    assert_eq!(store.ready().await.unwrap_err().kind(), StoreErrorKind::Stopped);
    let Err(RunError::Store(refused)) = engine.begin(&operation(1_000_000)).await else {
        panic!("a stopped store must refuse");
    };
    assert_eq!((refused.kind(), refused.effect()), (StoreErrorKind::Stopped, Effect::NotApplied));
    assert!(store.sweep(10).await.is_err());
    let replayed = engine.run(&operation(0), async |_| panic!("it ran before")).await.unwrap();
    assert_eq!(replayed, Ran::Replayed(outcome(0)));
    number
}

/// After a restart with room, everything that was acknowledged is there, and work goes on.
async fn verify(directory: &Path, acknowledged: u64) {
    let engine = Engine::new(EmbeddedStore::open(directory.join(STORE)).unwrap());
    for number in 0..acknowledged {
        let ran = engine.run(&operation(number), async |_| panic!("it ran before")).await.unwrap();
        assert_eq!(ran, Ran::Replayed(outcome(number)), "operation {number}");
    }
    let new = engine.begin(&operation(1_000_001)).await.unwrap();
    assert!(matches!(new, Begun::Claimed(_)));
}
