//! `orders`: three services with ledgers, two order services, and a checker.

use std::process::ExitCode;

use clap::Parser;
use justonce_orders::cli::Cli;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    Cli::parse().run().await
}
