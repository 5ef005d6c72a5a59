//! `cargo xtask bench`: one benchmark of the bench crate, in release mode.

use anyhow::Result;
use clap::Args;

use crate::cmd::Cmd;
use crate::services;

/// The peer of the stores' benchmark, once it is built.
const PEER: &str = "target/peers/release/justonce-peers";

/// The handler of the sagas' benchmark that the server of Restate calls, once it is built.
const RESTATE_HANDLER: &str = "target/peers/release/justonce-peer-restate";
/// Where the server of Restate is installed.
const RESTATE: &str = "target/restate";
const RESTATE_PACKAGE: &str = "@restatedev/restate-server@1.7.12";
/// A Python environment with DBOS, and its program.
const DBOS: &str = "target/dbos";
const DBOS_PYTHON: &str = "target/dbos/bin/python";
const DBOS_PACKAGE: &str = "dbos==3.3.0";

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
        "saga" => {
            services::run_for_sagas()?;
            saga_peers().iter().try_for_each(Cmd::run)?;
            let peers = ["--dbos", DBOS_PYTHON, "--restate", &restate_server()];
            command(options).args(&peers).args(&["--restate-handler", RESTATE_HANDLER]).run()
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

/// What the sagas are measured beside. What is there already is left as it is.
fn saga_peers() -> [Cmd; 4] {
    [
        build_peers(),
        Cmd::new("python3", &["-m", "venv", DBOS]),
        Cmd::new(DBOS_PYTHON, &["-m", "pip", "install", "--quiet", DBOS_PACKAGE]),
        Cmd::new("npm", &["install", "--silent", "--prefix", RESTATE, RESTATE_PACKAGE]),
    ]
}

/// The program itself, not the script beside it that starts it: who kills the script leaves the
/// program running.
fn restate_server() -> String {
    let machine = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    format!("{RESTATE}/node_modules/@restatedev/restate-server-linux-{machine}/bin/restate-server")
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
