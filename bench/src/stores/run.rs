//! The run: private servers, then each measurement.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use justonce_testbed::{PostgresOptions, PostgresServer, RedisServer};

use super::{layer, postgres, redis};
use crate::load::Candidate;
use crate::machine::describe;
use crate::report::{Report, write_into};

/// How long a candidate is loaded in one go.
pub(super) const SLICE: Duration = Duration::from_secs(1);

/// Redis and PostgreSQL beside their own load tools and a peer.
#[derive(Args)]
pub(crate) struct StoresArgs {
    /// Rounds, in each of which every candidate is loaded once; the median counts.
    #[arg(long, default_value_t = 3)]
    pub(super) rounds: u64,
    /// Seconds that each candidate is loaded in a round.
    #[arg(long, default_value_t = 6)]
    pub(super) seconds: u64,
    /// The peer's binary; `cargo xtask bench stores` builds it. Without it, it is left out.
    #[arg(long)]
    pub(super) peer: Option<PathBuf>,
    /// Only this part, to look closer at it.
    #[arg(long, conflicts_with = "write")]
    only: Option<Part>,
    /// Replace the figures in this file, between its markers.
    #[arg(long)]
    write: Option<PathBuf>,
}

/// A part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The Redis store beside redis-benchmark.
    Redis,
    /// The layer on Redis beside a peer.
    Layer,
    /// The PostgreSQL store beside pgbench.
    Postgres,
}

impl StoresArgs {
    pub(super) const fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn wants(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}

pub(crate) fn run(args: &StoresArgs) -> Result<ExitCode> {
    println!("{}", describe());
    let directory = tempfile::tempdir()?;
    let mut report = Report::default();
    // Each part has a server of its own: what one leaves behind must not weigh on the next.
    let redis_server = || RedisServer::start_with(&["--save", "", "--appendonly", "no"]);
    if args.wants(Part::Redis) {
        redis::measure(args, &redis_server()?, &mut report)?;
    }
    if args.wants(Part::Layer) {
        layer::measure(args, &redis_server()?, directory.path(), &mut report)?;
    }
    if args.wants(Part::Postgres) {
        let options = PostgresOptions { fsync: true, ..PostgresOptions::default() };
        postgres::measure(args, &PostgresServer::start(options)?, directory.path(), &mut report)?;
    }
    println!("\n{}", report.table());
    if let Some(file) = &args.write {
        write_into(file, "stores", &report)?;
    }
    Ok(if report.all_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The rates of all candidates in one round. Rounds have keys of their own.
pub(super) async fn in_turn(
    candidates: &[Candidate],
    round: u64,
    time: Duration,
) -> Result<Vec<f64>> {
    let mut rates = Vec::new();
    for candidate in candidates {
        rates.push(candidate(round, time).await?);
    }
    Ok(rates)
}

/// Adds the ratio of two rates to the report.
pub(super) fn add(report: &mut Report, what: &str, ours: f64, theirs: f64, least: f64) {
    add_ratio(report, what, ours / theirs, [ours, theirs], least);
}

/// Adds a ratio to the report, and the rates that it comes from.
pub(super) fn add_ratio(report: &mut Report, what: &str, ratio: f64, rates: [f64; 2], least: f64) {
    let [ours, theirs] = rates.map(|rate| rate / 1e3);
    let measured = format!("{ratio:.2} × ({ours:.1} k/s to {theirs:.1} k/s)");
    report.add(what, measured, &format!("≥ {least} ×"), ratio >= least);
}
