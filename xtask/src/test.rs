//! `cargo xtask test`: all tests with one command, on a machine that may have nothing yet.

use anyhow::Result;
use clap::Args;

use crate::cmd::Cmd;
use crate::services;

/// The variable by which the crash test learns how often to kill its child.
const KILLS_VARIABLE: &str = "JUSTONCE_KILLS";

/// Which tests to run, and how hard.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// How often the crash test kills its child; the test's own default is 50
    #[arg(long, value_name = "N")]
    kills: Option<u32>,
    /// Run only the tests whose name contains one of these; no doctests and no example
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

/// Installs what is missing, then runs the tests; the first failure ends the run.
pub(crate) fn run(options: &Options) -> Result<()> {
    services::run()?;
    commands(options).iter().try_for_each(Cmd::run)
}

/// The commands to run. They share the profile and the features, so that most is built once.
fn commands(options: &Options) -> Vec<Cmd> {
    let mut tests = Cmd::new("cargo", &["nextest", "run", "--workspace", "--all-features"]);
    if let Some(kills) = options.kills {
        tests = tests.env(KILLS_VARIABLE, &kills.to_string());
    }
    if !options.filters.is_empty() {
        return vec![tests.args(&options.filters)];
    }
    vec![
        tests,
        Cmd::new("cargo", &["test", "--doc", "--workspace", "--all-features"]),
        example("payment"),
        example("transfer"),
        example("fenced"),
        Cmd::new("cargo", &["run", "--quiet", "--", "demo", "--once"]),
    ]
}

fn example(name: &str) -> Cmd {
    Cmd::new("cargo", &["run", "--quiet", "--package", "justonce-examples", "--example", name])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(options: &Options) -> Vec<String> {
        commands(options).iter().map(Cmd::to_string).collect()
    }

    #[test]
    fn everything_runs_without_a_filter() {
        let expected = [
            "cargo nextest run --workspace --all-features",
            "cargo test --doc --workspace --all-features",
            "cargo run --quiet --package justonce-examples --example payment",
            "cargo run --quiet --package justonce-examples --example transfer",
            "cargo run --quiet --package justonce-examples --example fenced",
            "cargo run --quiet -- demo --once",
        ];
        assert_eq!(lines(&Options::default()), expected);
    }

    #[test]
    fn a_filter_runs_nextest_only() {
        let options = Options { kills: Some(500), filters: vec!["crash".into()] };
        let expected = "JUSTONCE_KILLS=500 cargo nextest run --workspace --all-features crash";
        assert_eq!(lines(&options), [expected]);
    }
}
