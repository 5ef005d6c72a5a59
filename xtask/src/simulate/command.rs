//! The command.

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;

use super::show;
use crate::cache;
use crate::cmd::Cmd;

/// The package.
pub(super) const PACKAGE: &str = "justonce-simulation";
/// The file with the seeds that ever failed: they are run first.
const KNOWN: &str = "crates/justonce-simulation/seeds";
/// For so long fresh seeds are run.
const DEFAULT_SECONDS: u64 = 60;

/// What to run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Runs at most so many fresh seeds
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Runs fresh seeds for so long, or looks for each mutant for so long
    #[arg(long, value_name = "S", default_value_t = DEFAULT_SECONDS)]
    seconds: u64,
    /// Runs only this seed
    #[arg(long, value_name = "X")]
    seed: Option<u64>,
    /// Runs only this world: memory, embedded or runtimes
    #[arg(long, value_name = "WORLD")]
    world: Option<String>,
    /// Prints the whole history of the seed
    #[arg(long, requires = "seed")]
    history: bool,
    /// Breaks the code in one way after the other, and shows that each is found
    #[arg(long, conflicts_with_all = ["seeds", "seed", "world", "history"])]
    mutants: bool,
    /// Only these mutants
    #[arg(value_name = "MUTANT", requires = "mutants")]
    names: Vec<String>,
}

/// Runs the simulation.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.mutants {
        return show::mutants(&options.names, options.seconds);
    }
    let target = cache::target_dir(|name| std::env::var(name).ok());
    build().run()?;
    let (kept, output) = simulation(&target, &arguments(options)).output()?;
    if !kept {
        // Who reads only the end of a log can run it again, too.
        bail!("a promise was broken; the history is above\n{}", how_to_go_on(&output));
    }
    Ok(())
}

/// The lines that say how to run a failure again.
fn how_to_go_on(output: &str) -> String {
    let wanted = ["broken promise:", "again:", "for ever:"];
    let lines = output.lines().filter(|line| wanted.iter().any(|start| line.starts_with(start)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Our own crates are built without optimisation: a run is short, and most builds are for one.
pub(super) fn build() -> Cmd {
    Cmd::new("cargo", &["build", "--package", PACKAGE, "--locked"])
}

/// The program in a target directory.
pub(super) fn simulation(target: &Path, arguments: &[String]) -> Cmd {
    let program = target.join("debug").join(PACKAGE);
    Cmd::new(&program.to_string_lossy(), arguments)
}

fn arguments(options: &Options) -> Vec<String> {
    let mut arguments = vec!["--seconds".to_owned(), options.seconds.to_string()];
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            arguments.extend([name.to_owned(), value]);
        }
    };
    add("--seeds", options.seeds.map(|seeds| seeds.to_string()));
    add("--world", options.world.clone());
    match options.seed {
        Some(seed) => add("--seed", Some(seed.to_string())),
        None => add("--known", Some(KNOWN.to_owned())),
    }
    if options.history {
        arguments.push("--history".to_owned());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cmd::workspace_root;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn of(line: &str) -> String {
        let line = Line::parse_from(["simulate"].into_iter().chain(line.split_whitespace()));
        arguments(&line.options).join(" ")
    }

    #[test]
    fn a_failure_says_how_to_run_it_again() {
        let output = "7 runs\nbroken promise: one outcome\nwhy\nagain: x --seed 7\n";
        assert_eq!(how_to_go_on(output), "broken promise: one outcome\nagain: x --seed 7");
    }

    #[test]
    fn known_seeds_come_before_fresh_ones() {
        assert_eq!(of(""), format!("--seconds 60 --known {KNOWN}"));
        assert_eq!(of("--seed 7 --world memory"), "--seconds 60 --world memory --seed 7");
        assert!(workspace_root().join(KNOWN).is_file());
    }
}
