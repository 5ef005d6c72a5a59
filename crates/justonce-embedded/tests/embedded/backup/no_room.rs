//! A disk without room for the backup, or for what is restored from it.

use std::path::Path;
use std::process::Command;

use justonce_embedded::EmbeddedStore;
use justonce_embedded::backup::{RestoreOptions, check, restore};

use crate::damage::filled::Filled;

/// Names a directory, and makes this binary the process that works there.
const WORKER_ENV: &str = "JUSTONCE_NO_ROOM_WORKER";
const WORKER: &str =
    "backup::no_room::a_full_disk_at_the_target_leaves_no_half_backup_and_no_store";
/// Less than a backup of the store takes.
const SMALL: &str = "size=1m";

#[test]
fn a_full_disk_at_the_target_leaves_no_half_backup_and_no_store() {
    if let Ok(directory) = std::env::var(WORKER_ENV) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        return runtime.block_on(work(directory.as_ref()));
    }
    let place = tempfile::tempdir().unwrap();
    let mounted = place.path().join("small");
    std::fs::create_dir(&mounted).unwrap();
    let script = format!(
        "mount -t tmpfs -o {SMALL} tmpfs \"${WORKER_ENV}/small\" && exec \"$0\" --exact {WORKER} \
         --nocapture"
    );
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(WORKER_ENV, place.path())
        .output()
        .unwrap_or_else(|error| panic!("this test needs `unshare` (package util-linux): {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("nothing is left"),
        "the worker failed; it needs root or user namespaces to mount a file system.\n{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

async fn work(directory: &Path) {
    let [store, small, large] = ["store", "small", "large"].map(|name| directory.join(name));
    let (filled, open) = Filled::new(&store).await;
    // In the mounted directory itself, and in one below it.
    for to in [small.clone(), small.join("backup")] {
        let error = open.backup(&to).await.unwrap_err().to_string();
        assert!(error.contains("No space left"), "{error}");
        let left = std::fs::read_dir(&small).unwrap().count();
        assert_eq!(left, 0, "something is left of {}", to.display());
    }
    filled.is_all_in(&open, "the store itself").await;
    open.backup(&large).await.unwrap();
    let error = restore(&large, &small, &RestoreOptions::default(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("No space left"), "{error}");
    assert!(check(&small, &mut |_| {}).is_err(), "there is no store");
    let names = std::fs::read_dir(&small).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.filter(|name| name != "owner.lock").collect();
    assert!(names.is_empty(), "{names:?}");
    let restored = directory.join("restored");
    restore(&large, &restored, &RestoreOptions::default(), &mut |_| {}).unwrap();
    filled.is_all_in(&EmbeddedStore::open(&restored).unwrap(), "restored").await;
    println!("nothing is left");
}
