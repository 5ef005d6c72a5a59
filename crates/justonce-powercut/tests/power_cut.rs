//! The states that a power cut may leave, and the syncs without which they would not be good.
//!
//! 200 states here, more with `cargo xtask powercut --states N`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this is a test, also the functions that are not marked as one"
)]

use std::path::Path;

use justonce_powercut::mutants::Dropped;
use justonce_powercut::record::Run;
use justonce_powercut::run::{Options, check, check_seed};
use justonce_powercut::scratch;

const RUNS: u64 = 2;
const STATES_A_RUN: usize = 100;

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_justonce-powercut"))
}

#[test]
fn nothing_that_was_acknowledged_is_lost_in_a_power_cut() {
    let (mut acknowledged, mut with_losses) = (0, 0);
    for seed in 0..RUNS {
        let scratch = scratch::directory().unwrap();
        let keep = tempfile::tempdir().unwrap();
        let options = Options {
            states: STATES_A_RUN,
            dropped: None,
            until_failure: false,
            scratch: scratch.path(),
            keep: Some(keep.path()),
        };
        let report = check_seed(program(), seed, options);
        let report = report.unwrap_or_else(|error| panic!("{error:#}"));
        if let Some(failure) = report.failures.first() {
            let count = report.failures.len();
            let kept = keep.keep();
            panic!("seed {seed}, {count} states, one kept in {}:\n{failure}", kept.display());
        }
        assert_eq!(report.states, STATES_A_RUN);
        acknowledged += report.acknowledged;
        with_losses += report.with_losses;
    }
    assert!(acknowledged > 10_000, "only {acknowledged} acknowledgements");
    assert!(with_losses > 100, "only {with_losses} states lost anything");
}

#[test]
fn without_each_kind_of_syncs_a_power_cut_loses_something() {
    let scratch = scratch::directory().unwrap();
    let run = Run::record(program(), scratch.path(), 7);
    let run = run.unwrap_or_else(|error| panic!("{error:#}"));
    for dropped in Dropped::ALL {
        let options = Options {
            states: 2 * STATES_A_RUN,
            dropped: Some(dropped),
            until_failure: true,
            scratch: scratch.path(),
            keep: None,
        };
        let report = check(&run, options).unwrap();
        assert!(!report.failures.is_empty(), "nothing was lost without {}", dropped.name());
    }
}

#[test]
fn without_syncs_of_directories_a_power_cut_loses_what_was_restored() {
    let scratch = scratch::directory().unwrap();
    let run = Run::record_restore(program(), scratch.path(), 3);
    let run = run.unwrap_or_else(|error| panic!("{error:#}"));
    let options = |dropped| Options {
        states: STATES_A_RUN,
        dropped,
        until_failure: true,
        scratch: scratch.path(),
        keep: None,
    };
    let report = check(&run, options(None)).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures[0]);
    assert!(report.acknowledged > 1000, "only {} acknowledgements", report.acknowledged);
    let report = check(&run, options(Some(Dropped::Directories))).unwrap();
    assert!(!report.failures.is_empty(), "nothing was lost");
}
