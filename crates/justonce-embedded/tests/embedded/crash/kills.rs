//! A process that works on the store is killed with SIGKILL at random points, again and again;
//! then the store is opened and compared with everything that was acknowledged.
//!
//! 50 kills by default, more with `cargo xtask test --kills N`.

use super::worker::WORKER_ENV;
use super::{history, parent, worker};

/// How many kills without the flag.
const DEFAULT_KILLS: u32 = 50;

#[test]
fn nothing_acknowledged_is_lost_and_no_claim_is_granted_twice() {
    let kills = match std::env::var("JUSTONCE_KILLS") {
        Ok(text) => text.parse().expect("JUSTONCE_KILLS must be a number"),
        Err(_) => DEFAULT_KILLS,
    };
    let directory = tempfile::tempdir().unwrap();
    let summary = parent::kill_again_and_again(directory.path(), kills);
    println!("{summary:?}");
    assert!(summary.claims > kills.into(), "the workers hardly worked: {summary:?}");
    assert!(summary.completed > kills.into(), "the workers hardly worked: {summary:?}");
    assert!(summary.cut_short > 0, "no operation was cut short: {summary:?}");
}

/// Without the variable this test runs the worker for a moment in this process; with it, it *is*
/// the worker that the other test starts and kills.
#[test]
fn the_worker_does_what_it_says() {
    if let Ok(directory) = std::env::var(WORKER_ENV) {
        worker::run_until_killed(directory.as_ref());
    }
    let directory = tempfile::tempdir().unwrap();
    let lines = worker::run_briefly(directory.path(), 100);
    let mut history = history::History::default();
    lines.iter().for_each(|line| history.note(line));
    history.end_of_process();
    parent::compare(directory.path(), &mut history);
    assert!(history.summary().completed > 10, "{:?}", history.summary());
}
