//! The run: candidates in turn, medians, ratios.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use super::processes::Process;
use super::wrk::{Askers, Load, Measured, load, prime};
use crate::machine::describe;
use crate::report::{Report, median, write_into};

/// The gateway beside nginx, the layer beside no layer.
#[derive(Args)]
pub(crate) struct GatewayArgs {
    /// Rounds, in each of which every candidate is loaded once; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds that each candidate is loaded in a round, one by one and in turn with the other.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Connections at once.
    #[arg(long, default_value_t = 64)]
    connections: u32,
    /// The binary of the gateway; built beside this one unless given.
    #[arg(long)]
    gateway: Option<PathBuf>,
    /// Replace the figures in this file, between its markers.
    #[arg(long)]
    write: Option<PathBuf>,
}

/// Two candidates under one load.
struct Pair {
    ours: Vec<(f64, Duration)>,
    theirs: Vec<(f64, Duration)>,
}

impl Pair {
    fn rates(&self) -> f64 {
        let rate = |all: &[(f64, Duration)]| median(all.iter().map(|one| one.0).collect());
        rate(&self.ours) / rate(&self.theirs)
    }

    fn p99s(&self) -> f64 {
        let p99 =
            |all: &[(f64, Duration)]| median(all.iter().map(|one| one.1.as_secs_f64()).collect());
        p99(&self.ours) / p99(&self.theirs)
    }

    fn shown(&self) -> String {
        let rate = |all: &[(f64, Duration)]| median(all.iter().map(|one| one.0).collect()) / 1e3;
        format!("{:.1} k/s to {:.1} k/s", rate(&self.ours), rate(&self.theirs))
    }
}

pub(crate) fn run(args: &GatewayArgs) -> Result<ExitCode> {
    println!("{}", describe());
    let directory = tempfile::tempdir()?;
    let mut report = Report::default();
    gateway(args, directory.path(), &mut report)?;
    layer(args, directory.path(), &mut report)?;
    println!("\n{}", report.table());
    if let Some(file) = &args.write {
        write_into(file, "gateway", &report)?;
    }
    Ok(if report.all_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn gateway(args: &GatewayArgs, directory: &Path, report: &mut Report) -> Result<()> {
    let origin = Process::announced(Command::new(std::env::current_exe()?).arg("origin"))?;
    let nginx = Process::nginx(directory, &origin.url)?;
    let gateway = Process::announced(
        Command::new(binary(args)?)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "off", "--set", "log.level=warn"])
            .args(["--upstream", &origin.url, "--store"])
            .arg(format!("file:{}", directory.join("store").display())),
    )?;
    let pair = |what| in_turn(args, directory, what, [&gateway.url, &nginx.url]);
    let get = pair(Load::Get)?;
    add(report, "pass-through (GET) to nginx", &get, 0.7);
    let replays = pair(Load::Duplicates)?;
    add(report, "replays from the embedded store to nginx proxying", &replays, 1.0);
    let first = pair(Load::FirstTime)?;
    add(report, "first-time operations, durable, to nginx proxying", &first, 0.3);
    let p99s = first.p99s();
    let shown = format!("{p99s:.2} ×");
    report.add("first-time operations: p99 to nginx's", shown, "< 5 ×", p99s < 5.0);
    let peak = gateway.peak_mib()?;
    report.add("most memory of the gateway", format!("{peak} MiB"), "< 200 MiB", peak < 200);
    Ok(())
}

fn layer(args: &GatewayArgs, directory: &Path, report: &mut Report) -> Result<()> {
    let exe = std::env::current_exe()?;
    let with = Process::announced(Command::new(&exe).arg("layer"))?;
    let without = Process::announced(Command::new(&exe).args(["layer", "--plain"]))?;
    let pair = |what| in_turn(args, directory, what, [&with.url, &without.url]);
    let duplicates = pair(Load::Duplicates)?;
    add(report, "layer on axum, memory store: duplicates to no layer", &duplicates, 0.75);
    let first = pair(Load::FirstTime)?;
    add(report, "layer on axum, memory store: first-time to no layer", &first, 0.65);
    Ok(())
}

/// What is measured in one go: shorter than the moods of the machine, which both then share.
const SLICE: Duration = Duration::from_secs(1);

fn in_turn(args: &GatewayArgs, directory: &Path, what: Load, urls: [&str; 2]) -> Result<Pair> {
    let mut pair = Pair { ours: Vec::new(), theirs: Vec::new() };
    for round in 0..args.rounds {
        let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
        for slice in 0..args.seconds {
            // Each slice has keys of its own; a replay must have been executed before.
            let name = format!("{what:?}-{round}-{slice}");
            if what == Load::Duplicates {
                urls.into_iter().try_for_each(|url| prime(url, &name))?;
            }
            let askers = Askers { threads: 1, connections: args.connections };
            let one = |url| load(directory, url, what, &name, askers, SLICE);
            let [our, their] = urls;
            ours.push(one(our)?);
            theirs.push(one(their)?);
        }
        pair.ours.push(of_round(&ours));
        pair.theirs.push(of_round(&theirs));
    }
    Ok(pair)
}

/// The rate of a whole round, and the p99 of its usual slice.
fn of_round(slices: &[Measured]) -> (f64, Duration) {
    let rate = slices.iter().map(|slice| slice.rate).sum::<f64>() / slices.len().max(1) as f64;
    let p99 = median(slices.iter().map(|slice| slice.p99.as_secs_f64()).collect());
    (rate, Duration::from_secs_f64(p99))
}

fn add(report: &mut Report, what: &str, pair: &Pair, wanted: f64) {
    let ratio = pair.rates();
    let measured = format!("{ratio:.2} × ({})", pair.shown());
    report.add(what, measured, &format!("≥ {wanted} ×"), ratio >= wanted);
}

fn binary(args: &GatewayArgs) -> Result<PathBuf> {
    if let Some(path) = &args.gateway {
        return Ok(path.clone());
    }
    let path = std::env::current_exe()?.with_file_name("justonce");
    anyhow::ensure!(
        path.exists(),
        "{} does not exist: run `cargo xtask bench gateway`, which builds it",
        path.display()
    );
    path.canonicalize().context("the gateway's binary")
}
