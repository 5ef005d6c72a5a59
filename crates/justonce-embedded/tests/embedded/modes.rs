//! Only its owner can read a store.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use justonce_core::store::Maintenance;
use justonce_core::{Engine, Key, OnLapsed, Operation, Outcome, Policy, Scope};
use justonce_embedded::EmbeddedStore;

/// The modes of a directory and everything in it.
fn modes(directory: &Path) -> BTreeMap<PathBuf, u32> {
    let mut found = BTreeMap::new();
    let mut paths = vec![directory.to_owned()];
    while let Some(path) = paths.pop() {
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        if path.is_dir() {
            paths.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path, mode);
    }
    found
}

async fn used(directory: &Path) {
    let engine = Engine::new(EmbeddedStore::open(directory).unwrap());
    let policy = Policy::builder().on_lapsed(OnLapsed::Hold).build().unwrap();
    let order = Operation::without_fingerprint(Scope::global(), Key::client("order").unwrap())
        .with_policy(policy);
    engine.run(&order, async |_| Ok(Outcome::bytes("done"))).await.unwrap();
}

#[tokio::test]
async fn what_a_store_makes_is_private() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("new/store");
    used(&directory).await;
    for (path, mode) in modes(&directory) {
        let private = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, private, "{} has {mode:o}", path.display());
    }
    let store = EmbeddedStore::open(&directory).unwrap();
    assert!(store.health().await.unwrap().is_good());
}

#[tokio::test]
async fn a_directory_that_others_can_reach_is_left_and_warned_about() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("store");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, Permissions::from_mode(0o750)).unwrap();
    used(&directory).await;
    let made = modes(&directory);
    assert_eq!(made[&directory], 0o750, "the operator's choice");
    for (path, mode) in made.iter().filter(|(path, _)| **path != directory) {
        assert_eq!(mode & 0o077, 0, "{} has {mode:o}", path.display());
    }
    let shared = directory.join("watermark");
    std::fs::set_permissions(&shared, Permissions::from_mode(0o640)).unwrap();
    let store = EmbeddedStore::open(&directory).unwrap();
    let warnings = store.health().await.unwrap().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].name, "directory-open-to-others");
    assert!(warnings[0].message.contains("chmod"), "{warnings:?}");
    drop(store);
    assert_eq!(modes(&directory)[&shared], 0o640, "it was so before");
}

#[tokio::test]
async fn a_private_directory_that_is_reached_by_a_link_is_private() {
    let place = tempfile::tempdir().unwrap();
    let link = place.path().join("link");
    std::os::unix::fs::symlink(place.path().join("store"), &link).unwrap();
    used(&place.path().join("store")).await;
    let store = EmbeddedStore::open(&link).unwrap();
    let health = store.health().await.unwrap();
    assert!(health.is_good(), "{health:?}");
}

#[tokio::test]
async fn records_that_lie_elsewhere_are_private_too_or_warned_about() {
    let place = tempfile::tempdir().unwrap();
    let (directory, elsewhere) = (place.path().join("store"), place.path().join("large-disk"));
    used(&directory).await;
    // As `cp -r` makes it, on a disk that has more room.
    std::fs::rename(directory.join("records"), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, directory.join("records")).unwrap();
    let before = modes(&elsewhere);
    for path in before.keys().filter(|path| path.is_dir()) {
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    used_again(&directory).await;
    for (path, mode) in modes(&elsewhere) {
        if !before.contains_key(&path) {
            assert_eq!(mode & 0o077, 0, "{} has {mode:o}", path.display());
        }
    }
    let store = EmbeddedStore::open(&directory).unwrap();
    let warnings = store.health().await.unwrap().warnings;
    assert_eq!(warnings.len(), 1, "others can read it, and nobody is told");
    let large_disk = directory.join("records").display().to_string();
    assert!(warnings[0].message.contains(&large_disk), "{warnings:?}");
}

async fn used_again(directory: &Path) {
    let engine = Engine::new(EmbeddedStore::open(directory).unwrap());
    let order = Operation::without_fingerprint(Scope::global(), Key::client("another").unwrap());
    engine.run(&order, async |_| Ok(Outcome::bytes("a secret"))).await.unwrap();
}
