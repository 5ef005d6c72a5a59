//! `cargo xtask bench`: one benchmark of the bench crate, in release mode.

use anyhow::Result;
use clap::Args;

use crate::cmd::Cmd;
use crate::services;

/// The peer of the stores' benchmark, once it is built.
const PEER: &str = "target/peers/release/justonce-peers";

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
    match options.name.as_str() {
        "gateway" => {
            services::run()?;
            Cmd::new("cargo", &["build", "--release", "--package", "justonce-server"]).run()?;
            command(options).run()
        }
        "stores" => {
            services::run()?;
            build_peers().run()?;
            command(options).args(&["--peer", PEER]).run()
        }
        _ => command(options).run(),
    }
}

/// The peers are no part of the workspace, and one asks for a newer compiler than it needs.
fn build_peers() -> Cmd {
    let build = ["build", "--release", "--locked", "--ignore-rust-version"];
    let where_to = ["--manifest-path", "bench/peers/Cargo.toml", "--target-dir", "target/peers"];
    Cmd::new("cargo", &build).args(&where_to)
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
