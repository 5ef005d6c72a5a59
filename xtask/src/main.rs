//! The project's own commands, so that a person, a script and CI all do the same thing.
//!
//! Run `cargo xtask --help` for the list. Each command lives in the file of its name.

mod bench;
mod cache;
mod ci;
mod cmd;
mod fuzz;
mod markdown;
mod mutants;
mod needs;
mod powercut;
mod release;
mod services;
mod simulate;
mod test;
mod tidy;
mod versions;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The commands that keep Justonce in order.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what the tests and the benchmarks need from the machine
    ///
    /// Looks for each need first and installs only what is missing. Debian packages are installed
    /// as root or with passwordless sudo; without either, the command to run is printed. Tests
    /// start private servers by themselves; `--start` starts some for you.
    Services(services::Options),
    /// Run the tests of some crates, or all: services, nextest, doctests, the examples and the demo
    ///
    /// `cargo xtask test core http` runs the tests of these crates and installs only what they
    /// need. Any other name selects the tests that contain it.
    Test(test::Options),
    /// Run the tests of the stores on other versions of PostgreSQL, and on Valkey
    ///
    /// They are installed beside the usual servers, into `justonce/versions` of the user's cache
    /// directory, or of `/var/cache` for root. Nothing else installs them: they are large.
    Versions(versions::Options),
    /// Run everything CI runs: fmt, clippy, tidy, fuzz, simulate, toolchain, features, packages, docs,
    /// tests
    ///
    /// With CI set and CARGO_TARGET_DIR unset, the build is kept in `justonce/target` of the
    /// user's cache directory, so that the next run rebuilds only what changed.
    Ci,
    /// Check the style rules that neither rustfmt nor clippy can
    ///
    /// Sizes, contents of lib.rs and mod.rs, the dependency law, inherited versions and lints,
    /// unfinished code, sleeps in tests, links in Markdown, paths of one machine, cycles between
    /// modules, and the generated parts of documents.
    Tidy(tidy::Options),
    /// Build the fuzz targets with coverage and run each for a while
    ///
    /// A crash fails the run, and its input is kept in `fuzz/crashes` of the target directory.
    Fuzz(fuzz::Options),
    /// Cut the power of the embedded store at many points, and check what is left
    ///
    /// 200 states are among the tests; here there may be more. With `--mutants` syncs are left out
    /// and sources changed, one after the other: each must be noticed.
    Powercut(powercut::Options),
    /// Run the engine, the layers and the stores in simulated time, and look for broken promises
    ///
    /// Every seed that ever failed comes first, then fresh ones. A failure prints its seed and a
    /// short history; `--seed` runs it again.
    Simulate(simulate::Options),
    /// Break each script of Redis and each statement of PostgreSQL, and show which test notices
    ///
    /// Takes an hour for both stores. An error if less than 95 % are noticed, or if one is not that
    /// has no reason beside it. The table is kept in `mutants` of the target directory.
    Mutants(mutants::Options),
    /// Check that what is to be published can be: toolchain, features, packages, licences
    ReleaseCheck(release::Options),
    /// Run a benchmark of the bench crate in release mode
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Services(options) => services::run_command(&options),
        Command::Test(options) => test::run(&options),
        Command::Versions(options) => versions::run(&options),
        Command::Ci => ci::run(),
        Command::Tidy(options) => tidy::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Powercut(options) => powercut::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Mutants(options) => mutants::run(&options),
        Command::ReleaseCheck(options) => release::run(&options),
        Command::Bench(options) => bench::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_after_the_dashes_reach_the_benchmark() {
        let line = ["cargo xtask", "bench", "core", "--", "--seconds", "3"];
        let Command::Bench(options) = Cli::parse_from(line).command else {
            panic!("expected the bench command");
        };
        assert_eq!(options.name, "core");
        assert_eq!(options.args, ["--seconds", "3"]);
    }
}
