//! Starts the workers, kills them, and looks at what they left.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use justonce_core::Entropy;
use justonce_core::store::Records;
use justonce_embedded::EmbeddedStore;

use super::history::{History, Summary};
use super::worker::{ROUND_ENV, WORKER_ENV, operation};

/// The test that is the worker.
const WORKER: &str = "crash::kills::the_worker_does_what_it_says";
/// The most lines a worker may say before it is killed.
const MAX_LINES: u32 = 400;

/// Kills workers on one directory, and compares after each.
pub(crate) fn kill_again_and_again(directory: &Path, kills: u32) -> Summary {
    let entropy = Entropy::from_system();
    let mut history = History::default();
    for kill in 0..kills {
        // Now and then before it is open, otherwise somewhere in its work.
        let lines = if kill % 8 == 7 { 0 } else { entropy.next_u32() % MAX_LINES };
        let spins = entropy.next_u32() % 200_000;
        for line in run_and_kill(directory, kill, lines, spins) {
            history.note(&line);
        }
        history.end_of_process();
        compare(directory, &mut history);
    }
    history.summary()
}

/// Runs a worker until it has said so much, kills it, and returns all that it said.
fn run_and_kill(directory: &Path, round: u32, lines: u32, spins: u32) -> Vec<String> {
    let mut child = Worker::start(directory, round);
    let mut said = Vec::new();
    let mut output = BufReader::new(child.0.stdout.take().unwrap());
    let mut opening = false;
    while !opening || said.len() < lines as usize {
        let mut line = String::new();
        if output.read_line(&mut line).unwrap() == 0 {
            panic!("the worker ended by itself: {:?}", child.0.wait());
        }
        opening |= line.contains("@opening");
        said.extend(spoken(&line));
    }
    // A moment that is no line's end.
    (0..spins).for_each(|n| {
        std::hint::black_box(n);
    });
    child.0.kill().unwrap();
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).unwrap();
    child.0.wait().unwrap();
    let rest = String::from_utf8_lossy(&rest).into_owned();
    // The last line may have been cut off, and then it was not said.
    let whole = rest.rfind('\n').map_or("", |end| &rest[..end]);
    said.extend(whole.lines().filter_map(spoken));
    said
}

/// What a line says, among the lines of the test harness.
fn spoken(line: &str) -> Option<String> {
    line.split_once('@').map(|(_, said)| said.trim_end().to_owned())
}

/// A worker that does not outlive the test.
struct Worker(Child);

impl Worker {
    fn start(directory: &Path, round: u32) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", WORKER, "--nocapture"])
            .env(WORKER_ENV, directory)
            .env(ROUND_ENV, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It is dead already unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens the store and compares every key with the history.
pub(crate) fn compare(directory: &Path, history: &mut History) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = EmbeddedStore::open(directory).unwrap();
        for key in history.keys() {
            let stored = store.get(&operation(key).id()).await.unwrap();
            history.check(key, stored.as_ref());
        }
    });
}
