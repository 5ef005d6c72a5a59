//! Files of others in the directory of a store: `lost+found` of a file system that is mounted
//! there, or what an operator has put there as root.
//!
//! Nobody can forbid root anything, so the tests work as another user where they are run by root.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use justonce_core::{Engine, Key, Operation, Outcome, Scope};
use justonce_embedded::EmbeddedStore;

/// Names the directory, and makes this binary the process that works there.
const WORKER_ENV: &str = "JUSTONCE_FOREIGN_WORKER";
const NOBODY: u32 = 65_534;

/// Runs a test of this file again, as a user who owns the directory and not all that is in it.
fn as_another(test: &str, mode: u32, foreign: impl FnOnce(&Path)) {
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let directory = place.path().join("store");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
    foreign(&directory);
    // The other user may not be let in where this binary lies.
    let binary = place.path().join("worker");
    std::fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    let mut worker = Command::new(binary);
    let test = format!("foreign::{test}");
    worker.args(["--exact", &test, "--nocapture"]).env(WORKER_ENV, &directory);
    if place.path().metadata().unwrap().uid() == 0 {
        chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
        worker.uid(NOBODY).gid(NOBODY);
    }
    let output = worker.output().unwrap();
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && ran, "{}", String::from_utf8_lossy(&output.stderr));
}

fn worker() -> Option<String> {
    std::env::var(WORKER_ENV).ok()
}

#[test]
fn a_store_opens_beside_a_folder_that_it_may_not_read() {
    let Some(directory) = worker() else {
        for mode in [0o700, 0o755] {
            as_another("a_store_opens_beside_a_folder_that_it_may_not_read", mode, |directory| {
                let lost = directory.join("lost+found");
                std::fs::create_dir(&lost).unwrap();
                std::fs::set_permissions(&lost, Permissions::from_mode(0o000)).unwrap();
            });
        }
        return;
    };
    EmbeddedStore::open(directory).unwrap();
}

#[test]
fn a_store_opens_when_the_reset_was_asked_for_by_root() {
    let Some(directory) = worker() else {
        return as_another(
            "a_store_opens_when_the_reset_was_asked_for_by_root",
            0o700,
            |directory| {
                std::fs::write(directory.join("reset-clock-floor"), "").unwrap();
            },
        );
    };
    EmbeddedStore::open(directory).unwrap();
}

#[test]
fn what_somebody_else_puts_there_does_not_keep_new_files_from_being_private() {
    let Some(directory) = worker() else {
        let test = "what_somebody_else_puts_there_does_not_keep_new_files_from_being_private";
        return as_another(test, 0o755, |_| {});
    };
    let directory = Path::new(&directory);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let engine = Engine::new(EmbeddedStore::open(directory).unwrap());
    // It comes while the store is open, and cannot be read.
    let folder = directory.join("a-backup");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, Permissions::from_mode(0o000)).unwrap();
    let order = Operation::without_fingerprint(Scope::global(), Key::client("order").unwrap());
    let outcome = Outcome::bytes("a secret of somebody ".repeat(100));
    runtime.block_on(engine.run(&order, async |_| Ok(outcome))).unwrap();
    drop(engine);
    let mut paths = vec![directory.join("records")];
    while let Some(path) = paths.pop() {
        let mode = path.metadata().unwrap().mode();
        assert_eq!(mode & 0o077, 0, "{} has {mode:o}", path.display());
        if path.is_dir() {
            paths.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
}
