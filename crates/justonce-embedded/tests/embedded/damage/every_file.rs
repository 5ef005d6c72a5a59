//! Every single file of a store is deleted, cut off, emptied, filled with zeros and swapped with
//! others, each in turn. Every opening has everything, or refuses and leaves the directory as it
//! was, byte for byte.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use justonce_embedded::EmbeddedStore;

use super::directory::{Contents, Damage, contents, damages, link};
use super::filled::Filled;

/// Names a directory, and makes this binary the process that fills it and is killed.
const WORKER_ENV: &str = "JUSTONCE_DAMAGE_WORKER";
/// What it says when it has filled the store.
const FILLED: &str = "filled";

/// Damages a store in one way after the other. Returns how many openings had everything, and how
/// many refused.
async fn damage_all(original: &Path, filled: &Filled) -> (usize, usize) {
    let (mut opened, mut refused) = (0, 0);
    for damage in damages(original) {
        let place = tempfile::tempdir().unwrap();
        let copy = place.path().join("store");
        link(original, &copy);
        damage.apply(&copy);
        let before = contents(&copy);
        match EmbeddedStore::open(&copy) {
            Ok(store) => {
                opened += 1;
                filled.is_all_in(&store, &damage.to_string()).await;
            }
            Err(error) => {
                refused += 1;
                says_what_is_wrong(&error.to_string(), &damage);
                let after = contents(&copy);
                let names = |of: &Contents| of.keys().cloned().collect::<Vec<_>>();
                assert_eq!(names(&after), names(&before), "{damage}: {error}");
                for (name, bytes) in &before {
                    assert!(after[name] == *bytes, "{damage}: {} has changed", name.display());
                }
            }
        }
    }
    (opened, refused)
}

/// A message names a file of the store, or what is missing, and what to do.
fn says_what_is_wrong(error: &str, damage: &Damage) {
    assert!(error.contains("estore the"), "{damage}: {error}");
    assert!(error.contains("/store/") || error.contains("are missing"), "{damage}: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_of_a_closed_store_can_be_lost_in_silence() {
    let directory = tempfile::tempdir().unwrap();
    let original = directory.path().join("original");
    let (filled, open) = Filled::new(&original).await;
    drop(open);
    let (opened, refused) = damage_all(&original, &filled).await;
    assert!(opened > 20 && refused > 60, "{opened} opened, {refused} refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_of_a_killed_store_can_be_lost_in_silence() {
    if let Ok(directory) = std::env::var(WORKER_ENV) {
        let _open = Filled::new(directory.as_ref()).await;
        println!("{FILLED}");
        // Until it is killed.
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let killed = directory.path().join("killed");
    let mut worker = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "damage::every_file::no_file_of_a_killed_store_can_be_lost_in_silence",
            "--nocapture",
        ])
        .env(WORKER_ENV, &killed)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(worker.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with(FILLED)), "the worker has failed");
    worker.kill().unwrap();
    worker.wait().unwrap();
    let (opened, refused) = damage_all(&killed, &Filled::expected()).await;
    assert!(opened > 20 && refused > 60, "{opened} opened, {refused} refused");
}

#[tokio::test]
async fn the_message_names_the_file_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let original = directory.path().join("store");
    drop(Filled::new(&original).await);
    let lost = original.join("records/keyspaces/1/current");
    std::fs::remove_file(&lost).unwrap();
    let error = EmbeddedStore::open(&original).unwrap_err().to_string();
    assert!(error.contains(&lost.display().to_string()), "{error}");
    assert!(error.contains("is missing") && error.contains("Restore"), "{error}");
}

#[tokio::test]
async fn a_store_without_its_list_of_files_is_read_whole_and_gets_a_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let original = directory.path().join("store");
    let (filled, open) = Filled::new(&original).await;
    drop(open);
    std::fs::remove_file(original.join("manifest")).unwrap();
    let store = EmbeddedStore::open(&original).unwrap();
    filled.is_all_in(&store, "no manifest").await;
    assert!(original.join("manifest").exists());
}

#[tokio::test]
async fn what_openings_that_were_cut_short_left_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let original = directory.path().join("store");
    for leftover in ["trial/keyspaces/0", "records.new/keyspaces/0"] {
        std::fs::create_dir_all(original.join(leftover)).unwrap();
    }
    std::fs::write(original.join("records.new/0.jnl"), "half").unwrap();
    std::fs::write(original.join("manifest.new"), "half").unwrap();
    let (filled, open) = Filled::new(&original).await;
    filled.is_all_in(&open, "after leftovers").await;
    assert!(!original.join("trial").exists() && !original.join("records.new").exists());
}
