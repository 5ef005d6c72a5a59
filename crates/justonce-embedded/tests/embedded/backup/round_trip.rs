//! What was in the store is in the backup, and in the store that is made of it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use justonce_core::store::Maintenance;
use justonce_embedded::EmbeddedStore;
use justonce_embedded::backup::{BackupError, RestoreOptions, Unpacker, check, restore};

use crate::damage::directory::contents;
use crate::damage::filled::Filled;

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_store_in_use_has_everything() {
    let place = tempfile::tempdir().unwrap();
    let [store, backup, copy] = ["store", "backup", "copy"].map(|name| place.path().join(name));
    let (filled, open) = Filled::new(&store).await;
    let report = open.backup(&backup).await.unwrap();
    assert!(report.damaged.is_empty() && report.files > 5, "{report:?}");
    assert!(check(&backup, &mut |_| {}).unwrap().is_good());
    let restored = restore(&backup, &copy, &RestoreOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(restored.taken_at, report.taken_at);
    let found = check(&copy, &mut |_| {}).unwrap();
    assert!(found.is_good(), "{found:?}");
    assert!(found.records > 90 && found.rows > 90 && found.index_rows > 0, "{found:?}");
    filled.is_all_in(&EmbeddedStore::open(&copy).unwrap(), "restored").await;
    // Again, as any store; and the first one goes on.
    filled.is_all_in(&EmbeddedStore::open(&copy).unwrap(), "restored, opened again").await;
    filled.is_all_in(&open, "the store itself").await;
    assert!(open.health().await.unwrap().is_good());
    let left = std::fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains("frozen")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_private_and_small() {
    let place = tempfile::tempdir().unwrap();
    let [store, backup, copy] = ["store", "backup", "copy"].map(|name| place.path().join(name));
    let open = EmbeddedStore::open(&store).unwrap();
    let report = open.backup(&backup).await.unwrap();
    assert!(report.bytes < 1024 * 1024, "{} bytes of an empty store", report.bytes);
    restore(&backup, &copy, &RestoreOptions::default(), &mut |_| {}).unwrap();
    are_private(&backup);
    are_private(&copy);
}

fn are_private(directory: &Path) {
    let mut paths = vec![directory.to_owned()];
    while let Some(path) = paths.pop() {
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        let private = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, private, "{} has {mode:o}", path.display());
        if path.is_dir() {
            paths.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_one_backup_at_a_time_and_none_of_a_closed_store() {
    let place = tempfile::tempdir().unwrap();
    let open = EmbeddedStore::open(place.path().join("store")).unwrap();
    let first = open.backups().begin().await.unwrap();
    let other = open.backup(place.path().join("second")).await.unwrap_err();
    assert!(matches!(other, BackupError::Busy), "{other}");
    drop(first);
    open.backup(place.path().join("third")).await.unwrap();
    let backups = open.backups();
    drop(open);
    let closed = backups.begin().await.unwrap_err();
    assert!(matches!(closed, BackupError::Stopped(_)), "{closed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_no_store_and_is_never_written_over() {
    let place = tempfile::tempdir().unwrap();
    let [store, backup] = ["store", "backup"].map(|name| place.path().join(name));
    let open = EmbeddedStore::open(&store).unwrap();
    open.backup(&backup).await.unwrap();
    let before = contents(&backup);
    let refused = EmbeddedStore::open(&backup).unwrap_err().to_string();
    assert!(refused.contains("store restore"), "{refused}");
    for occupied in [&backup, &store] {
        let refused = open.backup(occupied).await.unwrap_err();
        assert!(matches!(refused, BackupError::Occupied { .. }), "{refused}");
    }
    let mut after = contents(&backup);
    // Whoever tries to open a directory takes its lock.
    after.remove(Path::new("owner.lock"));
    assert!(before == after, "the backup was changed");
}

#[tokio::test]
async fn a_backup_of_a_store_that_was_opened_again_outlives_one_from_before() {
    let place = tempfile::tempdir().unwrap();
    let (path, to) = (place.path().join("store"), place.path().join("backup"));
    let store = EmbeddedStore::open(&path).unwrap();
    let before = store.backups().begin().await.unwrap();
    drop(store);
    let store = EmbeddedStore::open(&path).unwrap();
    let backup = store.backups().begin().await.unwrap();
    drop(before);
    let mut unpacker = Unpacker::new(&to).unwrap();
    backup.write_to(&mut unpacker, &mut |_| {}).unwrap();
    unpacker.finish().unwrap();
}
