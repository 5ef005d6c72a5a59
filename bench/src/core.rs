//! `cargo xtask bench core`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::machine::describe;
use crate::report::{Report, write_into};
use crate::{adaptive, big, embedded, memory};

/// The engine on the memory and the embedded store.
#[derive(Args)]
pub(crate) struct CoreArgs {
    /// Slices of each measurement, in turn with the others; the median counts.
    #[arg(long, default_value_t = 25)]
    slices: u64,
    /// Seconds that each slice takes.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Also fill a store with 10 million records and measure that; takes minutes and 6 GB of disk.
    #[arg(long)]
    big: bool,
    /// Only the big store.
    #[arg(long)]
    only_big: bool,
    /// How many records the big store gets; from 50 million on the bounds are narrower.
    #[arg(long, default_value_t = 10_000_000)]
    records: u64,
    /// Where the big store goes; a temporary directory unless given.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Only fill the big store, and measure it in a later run with this directory.
    #[arg(long, requires_all = ["only_big", "directory"])]
    fill_only: bool,
    /// Replace the figures in this file, between its markers.
    #[arg(long)]
    write: Option<PathBuf>,
}

pub(crate) fn run(args: &CoreArgs) -> Result<ExitCode> {
    println!("{}", describe());
    let mut report = Report::default();
    let time = Duration::from_secs_f64(args.seconds);
    if !args.only_big {
        memory::measure(&mut report)?;
        embedded::measure(&mut report, args.slices, time)?;
        adaptive::measure(&mut report, args.slices, time)?;
    }
    let section = if args.only_big { "core-big" } else { "core" };
    if args.big || args.only_big {
        let temporary = tempfile::tempdir()?;
        let directory = args.directory.as_deref().unwrap_or_else(|| temporary.path());
        big::prepare(args.records, directory)?;
        if args.fill_only {
            return Ok(ExitCode::SUCCESS);
        }
        big::measure(&mut report, args.records, directory)?;
    }
    println!("\n{}", report.table());
    if let Some(file) = &args.write {
        write_into(file, section, &report)?;
    }
    Ok(if report.all_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
