//! The process is killed while it makes a backup: the store has everything, and what there is of
//! the backup is whole, or is refused.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use justonce_core::Entropy;
use justonce_embedded::EmbeddedStore;
use justonce_embedded::backup::{BackupError, RestoreOptions, Unpacker, restore};

use crate::damage::filled::Filled;

/// Names a directory, and makes this binary the process that makes backups there.
const WORKER_ENV: &str = "JUSTONCE_BACKUP_WORKER";
const WORKER: &str = "backup::killed::a_kill_during_a_backup_harms_neither_store";
const KILLS: u32 = 12;
/// The most backups that a worker begins before it is killed.
const MAX_BACKUPS: u32 = 3;

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_a_backup_harms_neither_store() {
    if let Ok(directory) = std::env::var(WORKER_ENV) {
        return make_backups(directory.as_ref()).await;
    }
    let place = tempfile::tempdir().unwrap();
    let directory = place.path();
    drop(Filled::new(&directory.join("store")).await);
    let filled = Filled::expected();
    let entropy = Entropy::from_system();
    let (mut whole, mut refused) = (0, 0);
    for kill in 0..KILLS {
        let stage = ["freezing", "sending"][(kill % 2) as usize];
        let line = format!("{stage} {}", entropy.next_u32() % MAX_BACKUPS);
        run_and_kill(directory, &line, entropy.next_u32() % 1_000_000);
        let store = EmbeddedStore::open(directory.join("store")).unwrap();
        filled.is_all_in(&store, &format!("the store after kill {kill}")).await;
        drop(store);
        for entry in std::fs::read_dir(directory.join("store")).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(!name.to_string_lossy().contains("frozen"), "{name:?} is left");
        }
        let backups = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        for backup in backups.filter(|path| !path.ends_with("store")).collect::<Vec<_>>() {
            let to = directory.join("restored");
            match restore(&backup, &to, &RestoreOptions::default(), &mut |_| {}) {
                Ok(_) => {
                    whole += 1;
                    let store = EmbeddedStore::open(&to).unwrap();
                    filled.is_all_in(&store, &format!("the backup of kill {kill}")).await;
                    drop(store);
                    std::fs::remove_dir_all(&to).unwrap();
                }
                Err(error) => {
                    refused += 1;
                    assert!(matches!(error, BackupError::NotABackup { .. }), "{error}");
                    assert!(!to.exists());
                }
            }
            std::fs::remove_dir_all(backup).unwrap();
        }
    }
    println!("{whole} backups were whole, {refused} were refused");
    assert!(refused > 0, "no kill came while a backup was sent");
}

/// Runs a worker until it says this, and kills it a moment later.
fn run_and_kill(directory: &Path, until: &str, spins: u32) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", WORKER, "--nocapture"])
        .env(WORKER_ENV, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.any(|line| line.unwrap().contains(until));
    assert!(said, "the worker ended by itself: {:?}", child.wait());
    // A moment that is no line's end.
    (0..spins).for_each(|n| {
        std::hint::black_box(n);
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Makes one backup after the other until it is killed.
async fn make_backups(directory: &Path) {
    let store = EmbeddedStore::open(directory.join("store")).unwrap();
    for number in 0.. {
        println!("freezing {number}");
        let backup = store.backups().begin().await.unwrap();
        let mut unpacker = Unpacker::new(directory.join(format!("backup-{number}"))).unwrap();
        println!("sending {number}");
        backup.write_to(&mut unpacker, &mut |_| {}).unwrap();
        unpacker.finish().unwrap();
    }
}
