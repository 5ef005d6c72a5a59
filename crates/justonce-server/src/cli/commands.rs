//! The commands.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use justonce_demo::DemoOptions;

use super::admin::AdminCommand;
use super::check::{self, CheckOptions};
use super::keys::KeysCommand;
use super::migrate::{self, MigrateOptions};
use super::sagas::SagasCommand;
use super::store::{self, StoreCommand};
use super::{keys, sagas};
use crate::serve::{self, ServeOptions};

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
    Serve(ServeOptions),
    /// Check a configuration, explain each of its routes in words, and look for what it needs
    Check(CheckOptions),
    /// List, show and resolve records
    Keys(AdminCommand<KeysCommand>),
    /// List and show sagas, and make stuck ones due again
    Sagas(AdminCommand<SagasCommand>),
    /// Back up, check and restore the embedded store
    #[command(subcommand)]
    Store(StoreCommand),
    /// Make or change the tables of a PostgreSQL store
    Migrate(MigrateOptions),
    /// Show it at work: a gateway, a toy payments API and a client that loses, repeats and gives up
    Demo(DemoOptions),
}

/// Runs the command that this process was started with.
#[must_use]
pub fn run() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(options) => serve::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Keys(command) => command.run(keys::run),
        Command::Sagas(command) => command.run(sagas::run),
        Command::Store(command) => store::run(command),
        Command::Migrate(options) => migrate::run(&options),
        Command::Demo(options) => justonce_demo::run(options),
    };
    done.unwrap_or_else(|error| {
        eprintln!("justonce: {error:#}");
        ExitCode::FAILURE
    })
}
