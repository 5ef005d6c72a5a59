//! The power cut test as a program: it records itself, cuts and checks.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use justonce_powercut::check::Check;
use justonce_powercut::history::History;
use justonce_powercut::mutants::Dropped;
use justonce_powercut::record::{Run, WorkerFailed};
use justonce_powercut::restored::restored;
use justonce_powercut::run::{Options, Report, check, check_seed};
use justonce_powercut::scratch;
use justonce_powercut::workload::{self, End, Plan, Say};

/// The exit code if something was lost: then the check has worked.
const LOST: u8 = 3;
/// How many states are made of one recorded run.
const STATES_A_RUN: usize = 100;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Record runs, cut them and check what is left
    Check(CheckOptions),
    /// Be the process that is recorded
    Work(WorkOptions),
    /// Be the process that restores a backup, and is recorded
    Restore {
        /// The backup
        backup: PathBuf,
        /// The lines that say what is in it
        lines: PathBuf,
        /// The directory of the new store
        to: PathBuf,
    },
    /// Open a state that was kept, and compare it with the lines that were said until then; opening
    /// changes it
    Compare {
        /// The state
        root: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct CheckOptions {
    /// How many states are made in all
    #[arg(long, default_value_t = 200)]
    states: usize,
    /// Decides what is done and what is lost
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave syncs out of the recordings, one kind after the other, and fail unless that is noticed
    #[arg(long)]
    dropped: bool,
    /// End with the first state in which something was lost, and keep none
    #[arg(long)]
    until_failure: bool,
    /// Where states are written; in memory if there is room and no directory is named
    #[arg(long)]
    scratch: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum HowItEnds {
    Closes,
    Killed,
}

#[derive(Debug, clap::Args)]
struct WorkOptions {
    directory: PathBuf,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    process: u64,
    #[arg(long)]
    operations: u64,
    #[arg(long)]
    phases: u64,
    #[arg(long)]
    end: HowItEnds,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Check(options) => run(&options),
        Command::Work(options) => work(&options).map(|()| false),
        Command::Restore { backup, lines, to } => {
            restored(&backup, &lines, &to, &say()).map(|()| false)
        }
        Command::Compare { root } => compare(&root).map(|()| false),
    };
    match done {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::from(LOST),
        Err(error) => {
            eprintln!("error: {error:#}");
            let is_lost = error.downcast_ref::<WorkerFailed>().is_some();
            if is_lost { ExitCode::from(LOST) } else { ExitCode::FAILURE }
        }
    }
}

fn compare(root: &Path) -> Result<()> {
    let mut history = History::default();
    for line in std::fs::read_to_string(root.join("lines.txt"))?.lines() {
        history.add(line)?;
    }
    Check { history: &history, openings: 1 }.run(root)
}

fn work(options: &WorkOptions) -> Result<()> {
    let end = match options.end {
        HowItEnds::Closes => End::Closes,
        HowItEnds::Killed => End::Killed,
    };
    let WorkOptions { seed, process, operations, phases, .. } = *options;
    let plan = Plan { seed, process, operations, phases, end };
    workload::work(&options.directory, plan, &say())
}

fn say() -> Say {
    Arc::new(|line| {
        // One write a line. Who listens is the recorder.
        let said = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
        if said.is_err() {
            std::process::abort();
        }
    })
}

/// Whether something was lost.
fn run(options: &CheckOptions) -> Result<bool> {
    let scratch = match &options.scratch {
        Some(directory) => tempfile::tempdir_in(directory)?,
        None => scratch::directory()?,
    };
    let program = std::env::current_exe()?;
    let mut checked = 0;
    for number in 0.. {
        if checked >= options.states {
            break;
        }
        let seed = options.seed.wrapping_add(number);
        let keep = tempfile::Builder::new().prefix("justonce-powercut-").tempdir()?;
        let those = Options {
            states: STATES_A_RUN.min(options.states - checked),
            dropped: None,
            until_failure: options.until_failure,
            scratch: scratch.path(),
            keep: (!options.until_failure).then(|| keep.path()),
        };
        if options.dropped {
            let run = Run::record(&program, scratch.path(), seed)?;
            without(&run, Options { states: options.states, ..those })?;
            return Ok(false);
        }
        let report = check_seed(&program, seed, those);
        let report = report.with_context(|| format!("cannot check seed {seed}"))?;
        checked += report.states;
        print!("seed {seed}: ");
        tell(&report);
        if !report.failures.is_empty() {
            println!("something was lost with seed {seed}");
            if !options.until_failure {
                println!("kept: {}", keep.keep().display());
            }
            return Ok(true);
        }
    }
    Ok(false)
}

fn tell(report: &Report) {
    let Report { states, with_losses, acknowledged, failures } = report;
    println!(
        "{states} states, {with_losses} of them with losses, after \
         {acknowledged} acknowledgements: {} failures",
        failures.len()
    );
    for failure in failures {
        println!("\n{failure}");
    }
}

/// Without each kind of syncs, something must be lost.
fn without(run: &Run, options: Options<'_>) -> Result<()> {
    let mut unnoticed = Vec::new();
    for dropped in Dropped::ALL {
        let options =
            Options { dropped: Some(dropped), until_failure: true, keep: None, ..options };
        let report = check(run, options)?;
        let found = match report.failures.first() {
            Some(failure) => format!("noticed after {} states: {}", report.states, failure.message),
            None => {
                unnoticed.push(dropped.name());
                format!("NOT NOTICED in {} states", report.states)
            }
        };
        println!("without {}: {found:.300}", dropped.name());
    }
    if !unnoticed.is_empty() {
        bail!("nothing was lost without {}", unnoticed.join(", nor without "));
    }
    Ok(())
}
