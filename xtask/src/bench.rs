//! `cargo xtask bench`: one benchmark of the bench crate, in release mode.

use anyhow::Result;
use clap::Args;

use crate::cmd::Cmd;
use crate::services;

/// Which benchmark to run, and with what.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The benchmark, for example `core`; the bench crate knows the names
    pub(crate) name: String,
    /// Arguments for the benchmark itself, after `--`
    #[arg(last = true)]
    pub(crate) args: Vec<String>,
}

/// Builds what is measured and runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.name == "gateway" {
        services::run()?;
        Cmd::new("cargo", &["build", "--release", "--package", "justonce-server"]).run()?;
    }
    command(options).run()
}

fn command(options: &Options) -> Cmd {
    Cmd::new("cargo", &["run", "--release", "--package", "justonce-bench", "--"])
        .args(&[&options.name])
        .args(&options.args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_comes_before_its_arguments() {
        let options = Options { name: "core".into(), args: vec!["--quick".into()] };
        let expected = "cargo run --release --package justonce-bench -- core --quick";
        assert_eq!(command(&options).to_string(), expected);
    }
}
