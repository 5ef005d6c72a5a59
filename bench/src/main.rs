//! Benchmarks beside peers and floors, each as a ratio in one run.
//!
//! Run them through `cargo xtask bench core`.

mod adaptive;
mod big;
mod core;
mod embedded;
mod floor;
mod load;
mod machine;
mod memory;
mod report;
mod sqlite;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures Justonce beside its peers and floors, in one run, as ratios.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The engine on the memory and the embedded store.
    Core(core::CoreArgs),
}

fn main() -> ExitCode {
    let result = match Args::parse().what {
        What::Core(args) => core::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
