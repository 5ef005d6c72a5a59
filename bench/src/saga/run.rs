//! The run: each measurement in turn.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::{dbos, embedded, restate};
use crate::machine::describe;
use crate::report::{Report, write_into};

/// Sagas beside bare commits, DBOS and Restate.
#[derive(Args)]
pub(crate) struct SagaArgs {
    /// Rounds, in each of which every candidate is loaded once; the median counts.
    #[arg(long, default_value_t = 3)]
    pub(super) rounds: u64,
    /// Seconds that each candidate is loaded in a round.
    #[arg(long, default_value_t = 5)]
    pub(super) seconds: u64,
    /// A Python with DBOS; `cargo xtask bench saga` makes one. Without it, it is left out.
    #[arg(long)]
    dbos: Option<PathBuf>,
    /// The server of Restate; `cargo xtask bench saga` installs it. Without it, it is left out.
    #[arg(long, requires = "restate_handler")]
    restate: Option<PathBuf>,
    /// The handler that the server of Restate calls; `cargo xtask bench saga` builds it.
    #[arg(long)]
    restate_handler: Option<PathBuf>,
    /// Replace the figures in this file, between its markers.
    #[arg(long)]
    write: Option<PathBuf>,
}

impl SagaArgs {
    pub(super) const fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

pub(crate) fn run(args: &SagaArgs) -> Result<ExitCode> {
    println!("{}", describe());
    let directory = tempfile::tempdir()?;
    let mut report = Report::default();
    embedded::measure(args, directory.path(), &mut report)?;
    match &args.dbos {
        Some(python) => dbos::measure(args, python, &mut report)?,
        None => println!("DBOS is left out: `cargo xtask bench saga` brings it"),
    }
    match (&args.restate, &args.restate_handler) {
        (Some(server), Some(handler)) => {
            restate::measure(args, server, handler, directory.path(), &mut report)?;
        }
        _ => println!("Restate is left out: `cargo xtask bench saga` brings it"),
    }
    println!("\n{}", report.table());
    if let Some(file) = &args.write {
        write_into(file, "saga", &report)?;
    }
    Ok(if report.all_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Adds a ratio to the report.
pub(super) fn add(report: &mut Report, what: &str, ours: f64, theirs: f64, least: f64) {
    let ratio = ours / theirs;
    let measured = format!("{ratio:.2} × ({ours:.0}/s to {theirs:.0}/s)");
    report.add(what, measured, &format!("≥ {least} ×"), ratio >= least);
}
