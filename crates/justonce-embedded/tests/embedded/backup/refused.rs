//! What is no whole backup makes no store, and no store is written over.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use justonce_core::{ManualClock, Timestamp};
use justonce_embedded::EmbeddedStore;
use justonce_embedded::backup::{
    BackupError, Progress, RestoreOptions, Restored, Unpacker, check, restore,
};

use crate::damage::directory::{contents, link};
use crate::damage::filled::Filled;

fn restored(backup: &Path, to: &Path) -> Result<Restored, BackupError> {
    restore(backup, to, &RestoreOptions::default(), &mut |_| {})
}

async fn backed_up(place: &Path) -> (Filled, PathBuf) {
    let (filled, open) = Filled::new(&place.join("store")).await;
    open.backup(place.join("backup")).await.unwrap();
    (filled, place.join("backup"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_with_any_file_damaged_or_missing_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (_, backup) = backed_up(place.path()).await;
    let (broken, to) = (place.path().join("broken"), place.path().join("to"));
    for name in contents(&backup).keys() {
        for is_lost in [true, false] {
            link(&backup, &broken);
            let path = broken.join(name);
            let mut bytes = std::fs::read(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            if !is_lost {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                std::fs::write(&path, bytes).unwrap();
            }
            let refused = restored(&broken, &to).unwrap_err();
            assert!(matches!(refused, BackupError::NotABackup { .. }), "{name:?}: {refused}");
            assert!(!to.exists(), "{name:?}: something is left");
            let is_list = name == Path::new("backup");
            match check(&broken, &mut |_| {}) {
                Ok(report) => assert!(!is_list && !report.is_good(), "{name:?}: {report:?}"),
                Err(error) => assert!(is_list, "{name:?}: {error}"),
            }
            std::fs::remove_dir_all(&broken).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_off_anywhere_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(place.path().join("store")).unwrap();
    let mut stream = Vec::new();
    store.backups().begin().await.unwrap().write_to(&mut stream, &mut |_| {}).unwrap();
    let to = place.path().join("to");
    let unpack = |bytes: &[u8]| {
        let mut unpacker = Unpacker::new(&to).unwrap();
        // In small pieces, as they may come over a network.
        let written =
            bytes.chunks(777).try_for_each(|part| std::io::Write::write_all(&mut unpacker, part));
        written.map_err(|error| error.to_string())?;
        unpacker.finish().map_err(|error| error.to_string())
    };
    for part in 0..20 {
        assert!(unpack(&stream[..stream.len() * part / 20]).is_err(), "{part}/20");
        assert!(!to.exists(), "{part}/20");
    }
    for part in 1..20 {
        let mut damaged = stream.clone();
        damaged[stream.len() * part / 20] ^= 1;
        assert!(unpack(&damaged).is_err(), "{part}/20");
        assert!(!to.exists(), "{part}/20");
    }
    unpack(&stream).unwrap();
    restored(&to, &place.path().join("restored")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_over() {
    let place = tempfile::tempdir().unwrap();
    let (_, backup) = backed_up(place.path()).await;
    let [store, other, empty] = ["store", "other", "empty"].map(|name| place.path().join(name));
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("notes.txt"), "mine").unwrap();
    for occupied in [&store, &other, &backup] {
        let before = contents(occupied);
        let refused = restored(&backup, occupied).unwrap_err();
        assert!(matches!(refused, BackupError::Occupied { .. }), "{refused}");
        assert!(before == contents(occupied), "{} was changed", occupied.display());
    }
    std::fs::create_dir(&empty).unwrap();
    restored(&backup, &empty).unwrap();
}

/// As a kill leaves it: nothing tidies up.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_is_cut_short_leaves_no_store_and_can_be_repeated() {
    let place = tempfile::tempdir().unwrap();
    let (filled, backup) = backed_up(place.path()).await;
    let to = place.path().join("to");
    let mut steps = Vec::new();
    let tell = &mut |now: Progress| steps.push(now.done);
    restore(&backup, place.path().join("whole"), &RestoreOptions::default(), tell).unwrap();
    let few = steps.iter().step_by(steps.len() / 10 + 1).chain(steps.last());
    for cut in few {
        let tell = &mut |now: Progress| assert!(now.done < *cut, "cut short");
        let cut_short = catch_unwind(AssertUnwindSafe(|| {
            drop(restore(&backup, &to, &RestoreOptions::default(), tell));
        }));
        assert!(cut_short.is_err());
        let refused = EmbeddedStore::open(&to).unwrap_err().to_string();
        assert!(refused.contains("cut short"), "{refused}");
    }
    restored(&backup, &to).unwrap();
    filled.is_all_in(&EmbeddedStore::open(&to).unwrap(), "restored at last").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_from_the_future_shows_that_a_clock_is_wrong() {
    let place = tempfile::tempdir().unwrap();
    let (store, backup) = (place.path().join("store"), place.path().join("backup"));
    let later = Timestamp::from_millis(1_900_000_000_000);
    let now = Timestamp::from_millis(1_800_000_000_000);
    let clock = ManualClock::starting_at(later);
    let open = EmbeddedStore::builder(&store).clock(clock).open().unwrap();
    open.backup(&backup).await.unwrap();
    let options = || RestoreOptions::default().clock(ManualClock::starting_at(now));
    let to = place.path().join("to");
    let refused = restore(&backup, &to, &options(), &mut |_| {}).unwrap_err();
    assert!(matches!(refused, BackupError::Clock(_)), "{refused}");
    assert!(!to.exists());
    let made = Timestamp::from_millis(1_799_000_000_000);
    let restored = restore(&backup, &to, &options().taken_at(made), &mut |_| {}).unwrap();
    assert_eq!(restored.taken_at, made);
}

/// Two backups into one directory are begun before either has written anything, and the second is
/// given up: as the gateway refuses it.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_backups_into_one_directory_one_is_refused_and_the_other_is_whole() {
    let place = tempfile::tempdir().unwrap();
    let (_, open) = Filled::new(&place.path().join("store")).await;
    for exists in [false, true] {
        let to = place.path().join(format!("backup-{exists}"));
        if exists {
            std::fs::create_dir(&to).unwrap();
        }
        let mut first = Unpacker::new(&to).unwrap();
        let second = Unpacker::new(&to);
        let mut stream = Vec::new();
        open.backups().begin().await.unwrap().write_to(&mut stream, &mut |_| {}).unwrap();
        let (half, rest) = stream.split_at(stream.len() / 2);
        std::io::Write::write_all(&mut first, half).unwrap();
        let (second, third) = (second.map(drop), Unpacker::new(&to).map(drop));
        std::io::Write::write_all(&mut first, rest).unwrap();
        first.finish().unwrap();
        let report = check(&to, &mut |_| {}).unwrap();
        assert!(report.is_good(), "a backup that was said to be whole: {report:?}");
        for other in [second, third, Unpacker::new(&to).map(drop)] {
            assert!(matches!(other, Err(BackupError::Occupied { .. })), "{other:?}");
        }
    }
}

/// Operators keep backups where they like: also in a folder `backup` in the store's directory.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_called_backup_in_a_store_makes_no_backup_of_it() {
    let place = tempfile::tempdir().unwrap();
    let (store, backup) = (place.path().join("store"), place.path().join("store/backup"));
    std::fs::create_dir_all(&backup).unwrap();
    let (filled, open) = Filled::new(&store).await;
    open.backup(&backup).await.unwrap();
    drop(open);
    let report = check(&store, &mut |_| {}).unwrap();
    assert!(report.is_good() && report.taken_at.is_none(), "{report:?}");
    filled.is_all_in(&EmbeddedStore::open(&store).unwrap(), "the store").await;
    let refused = restored(&store, &place.path().join("to")).unwrap_err();
    assert!(matches!(refused, BackupError::NotABackup { .. }), "{refused}");
    assert!(check(&backup, &mut |_| {}).unwrap().is_good());
}
