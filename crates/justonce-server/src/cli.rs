//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::check::{self, CheckOptions};
use crate::config::Flags;
use crate::demo::{self, DemoOptions};
use crate::keys::{self, KeysOptions};
use crate::migrate::{self, MigrateOptions};
use crate::sagas::{self, SagasOptions};
use crate::serve;

/// Makes an operation take effect once, however often it is asked for.
#[derive(Debug, Parser)]
#[command(name = "justonce", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway in front of an API
    Serve(Flags),
    /// Check a configuration, explain each of its routes in words, and look for what it needs
    Check(CheckOptions),
    /// Find records, look at them, and say what became of unknown operations
    Keys(KeysOptions),
    /// Find sagas, look at them, and make stuck ones due again
    Sagas(SagasOptions),
    /// Make or change the tables of a PostgreSQL store
    Migrate(MigrateOptions),
    /// Show it at work: a gateway, a toy payments API and a client that loses, repeats and gives up
    Demo(DemoOptions),
}

/// Runs the command that this process was started with.
#[must_use]
pub fn run() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(flags) => serve::run(&flags),
        Command::Check(options) => check::run(&options),
        Command::Keys(options) => keys::run(&options),
        Command::Sagas(options) => sagas::run(&options),
        Command::Migrate(options) => migrate::run(&options),
        Command::Demo(options) => demo::run(options),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("justonce: {error:#}");
            ExitCode::FAILURE
        }
    }
}
