//! A check reads everything, says what is damaged, and changes nothing.

use std::path::{Path, PathBuf};

use justonce_core::store::Records;
use justonce_embedded::EmbeddedStore;
use justonce_embedded::backup::{BackupError, StoreReport, check};

use crate::damage::directory::{Damage, contents, damages, link};
use crate::damage::filled::Filled;

fn checked(directory: &Path) -> StoreReport {
    let before = contents(directory);
    let report = check(directory, &mut |_| {}).unwrap();
    assert!(before == contents(directory), "the check changed something");
    report
}

/// Turns a bit in the middle of a file around, which may be linked elsewhere.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    std::fs::remove_file(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_named_also_where_an_opening_does_not_look() {
    let place = tempfile::tempdir().unwrap();
    let [original, copy] = ["original", "copy"].map(|name| place.path().join(name));
    drop(Filled::new(&original).await);
    let good = checked(&original);
    assert!(good.is_good() && good.records > 90 && good.files > 5, "{good:?}");
    // What counts of the engine is in these; of the rest, other copies may be there.
    let fixed = |name: &PathBuf| {
        let folder = |folder: &str| name.components().any(|part| part.as_os_str() == folder);
        folder("tables") || folder("blobs") || name.ends_with("current")
    };
    let mut opened = 0;
    for name in contents(&original).into_keys().filter(fixed) {
        link(&original, &copy);
        damage(&copy.join(&name));
        let report = checked(&copy);
        let named =
            report.problems.iter().any(|problem| problem.contains(&*name.to_string_lossy()));
        let current = name.ends_with("current");
        assert!(!report.is_good() && (named || current), "{name:?}: {report:?}");
        opened += usize::from(EmbeddedStore::open(&copy).is_ok());
        std::fs::remove_dir_all(&copy).unwrap();
    }
    assert!(opened > 0, "an opening found all of it already: the test shows nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_opening_would_refuse_or_lack_is_never_called_good() {
    let place = tempfile::tempdir().unwrap();
    let [original, copy] = ["original", "copy"].map(|name| place.path().join(name));
    let (filled, open) = Filled::new(&original).await;
    drop(open);
    let (mut good, mut bad) = (0, 0);
    for damage in damages(&original) {
        if !matches!(damage, Damage::Deleted(_) | Damage::Zeroed(_)) {
            continue;
        }
        link(&original, &copy);
        damage.apply(&copy);
        if checked(&copy).is_good() {
            good += 1;
            let store = EmbeddedStore::open(&copy).unwrap_or_else(|e| panic!("{damage}: {e}"));
            filled.is_all_in(&store, &damage.to_string()).await;
        } else {
            bad += 1;
        }
        std::fs::remove_dir_all(&copy).unwrap();
    }
    assert!(good > 0 && bad > 20, "{good} were called good, {bad} were not");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_is_named_and_a_backup_of_the_store_says_so() {
    let place = tempfile::tempdir().unwrap();
    let [store, backup] = ["store", "backup"].map(|name| place.path().join(name));
    drop(Filled::new(&store).await);
    let blobs = store.join("records/keyspaces/1/blobs");
    let files = std::fs::read_dir(blobs).unwrap().map(|entry| entry.unwrap().path());
    damage(&files.max_by_key(|path| path.metadata().unwrap().len()).unwrap());
    let report = checked(&store);
    assert!(!report.damaged_records.is_empty(), "{report:?}");
    let open = EmbeddedStore::open(&store).unwrap();
    for id in &report.damaged_records {
        assert!(open.get(id).await.is_err(), "it can be read: {id}");
    }
    let made = open.backup(&backup).await.unwrap();
    assert_eq!(made.damaged.len(), 1, "{made:?}");
    assert_eq!(checked(&backup).damaged_records, report.damaged_records);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_in_the_log_is_noticed() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    let (_, open) = Filled::new(&store).await;
    // As a kill leaves it: the last batches are in the log only.
    let copy = place.path().join("copy");
    link(&store, &copy);
    drop(open);
    std::fs::remove_file(copy.join("owner.lock")).unwrap();
    let report = checked(&copy);
    assert!(report.is_good() && report.logged > 0, "{report:?}");
    for entry in std::fs::read_dir(copy.join("wal")).unwrap() {
        std::fs::write(entry.unwrap().path(), "").unwrap();
    }
    let report = checked(&copy);
    assert!(report.problems.iter().any(|problem| problem.contains("are missing")), "{report:?}");
}

#[test]
fn a_store_that_is_open_and_what_is_no_store_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    let _open = EmbeddedStore::open(&store).unwrap();
    let refused = check(&store, &mut |_| {}).unwrap_err().to_string();
    assert!(refused.contains(&format!("in use by process {}", std::process::id())), "{refused}");
    for nothing in [place.path().to_owned(), place.path().join("nowhere")] {
        let refused = check(&nothing, &mut |_| {}).unwrap_err();
        assert!(matches!(refused, BackupError::NotABackup { .. }), "{refused}");
    }
    assert!(!place.path().join("nowhere").exists());
}
