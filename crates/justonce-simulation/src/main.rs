//! Runs the simulation; `cargo xtask simulate` builds and starts this.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use justonce_simulation::{Failure, Found, Search, Seed, World, history, run_seed};

/// Runs the shipped engine, layers and stores on a scheduler and a clock of one seed.
#[derive(Debug, Parser)]
struct Options {
    /// At most so many fresh seeds.
    #[arg(long, default_value_t = u64::MAX)]
    seeds: u64,
    /// For at most so long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Where fresh seeds begin; drawn if it is not given.
    #[arg(long)]
    from: Option<u64>,
    /// Only this world: memory, embedded or runtimes.
    #[arg(long)]
    world: Option<String>,
    /// A file with seeds that are run first.
    #[arg(long)]
    known: Option<PathBuf>,
    /// Prints the whole history of the seed.
    #[arg(long)]
    history: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether every promise was kept.
fn run(options: &Options) -> Result<bool> {
    let world = match &options.world {
        None => None,
        Some(name) => match World::parse(name) {
            Some(world) => Some(world),
            None => bail!("there is no world {name}: use memory, embedded or runtimes"),
        },
    };
    if let Some(seed) = options.seed {
        return Ok(one(world, seed, options.history));
    }
    let known = match &options.known {
        None => Vec::new(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let seeds = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let seeds = seeds.filter(|line| !line.starts_with('#'));
            let parse = |line| Seed::parse(line).with_context(|| format!("no seed: {line}"));
            seeds.map(parse).collect::<Result<_>>()?
        }
    };
    let from = options.from.unwrap_or_else(fresh);
    let time = Duration::from_secs(options.seconds);
    let found = Search { known, from, seeds: options.seeds, time, world }.run();
    Ok(report(&found))
}

/// One seed, in one world or in all.
fn one(world: Option<World>, seed: u64, whole: bool) -> bool {
    let worlds = world.map_or(World::ALL.to_vec(), |world| vec![world]);
    let mut kept = true;
    for world in worlds {
        if whole {
            println!("{}", history(world, seed));
        }
        match run_seed(world, seed, true) {
            Ok(()) => println!("{} {seed}: every promise was kept", world.name()),
            Err(failure) => {
                tell(&failure);
                kept = false;
            }
        }
    }
    kept
}

fn report(found: &Found) -> bool {
    let [memory, embedded, runtimes] = found.runs;
    let took = found.took.as_secs_f64();
    println!(
        "{memory} runs in memory, {embedded} on the embedded store, {runtimes} with runtimes that \
         fail, in {took:.1} s"
    );
    if found.panicked {
        println!("a thread of the simulation panicked: what it says is above");
    }
    found.failure.as_ref().inspect(|failure| tell(failure)).is_none() && !found.panicked
}

fn tell(failure: &Failure) {
    let Failure { world, seed, violation, history } = failure;
    println!("broken promise: {}", violation.rule);
    println!("{}", violation.why);
    println!("{history}");
    println!("seed: {} {seed}", world.name());
    println!("again: cargo xtask simulate --world {} --seed {seed}", world.name());
    println!("for ever: add the line `{} {seed}` to the file of seeds", world.name());
}

/// A seed that nobody has run.
fn fresh() -> u64 {
    // Room for as many as can be run, whatever the number.
    RandomState::new().build_hasher().finish() >> 16
}
