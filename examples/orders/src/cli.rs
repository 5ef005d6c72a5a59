//! The commands.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tokio::net::TcpListener;

use crate::by_phases::ByPhases;
use crate::by_saga::BySaga;
use crate::check::{books, check, orders};
use crate::front::{self, Settings};
use crate::service::{self, Faults};
use crate::services::{Addresses, Services};
use crate::stage::Stage;
use crate::trade::Trade;

/// Orders over three services that survive any crash
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The inventory: reserve, cancel
    Inventory(ServiceOptions),
    /// The payment: charge, refund
    Payment(ServiceOptions),
    /// The shipping: ship, recall
    Shipping(ServiceOptions),
    /// An order service by a saga, on the embedded store
    Saga {
        /// Where its store is
        #[arg(long, value_name = "DIRECTORY")]
        data: PathBuf,
        #[command(flatten)]
        options: OrderOptions,
    },
    /// An order service by phases, on PostgreSQL
    Phases {
        /// Where its database is
        #[arg(long, value_name = "postgres://…")]
        database: String,
        #[command(flatten)]
        options: OrderOptions,
    },
    /// Compares the three ledgers
    Check {
        /// Where the directories of the three services are
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
    },
}

#[derive(Debug, Args)]
struct ServiceOptions {
    /// Where it listens
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where its ledger and its store are
    #[arg(long, value_name = "DIRECTORY")]
    data: PathBuf,
    #[command(flatten)]
    faults: Faults,
}

#[derive(Debug, Args)]
struct OrderOptions {
    /// Where it listens
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[command(flatten)]
    addresses: Addresses,
    #[command(flatten)]
    settings: Settings,
}

impl Cli {
    /// Does what was said.
    ///
    /// # Errors
    ///
    /// If it cannot be done.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Inventory(options) => options.run(Trade::Inventory).await?,
            Command::Payment(options) => options.run(Trade::Payment).await?,
            Command::Shipping(options) => options.run(Trade::Shipping).await?,
            Command::Saga { data, options: OrderOptions { listen, addresses, settings } } => {
                let services = Services { addresses, stage: Stage::from_environment() };
                let orders = BySaga::open(&data, &services, &settings)?;
                let listener = TcpListener::bind(listen).await?;
                front::run(orders, listener, &settings, services.stage).await?;
            }
            Command::Phases { database, options: OrderOptions { listen, addresses, settings } } => {
                let services = Services { addresses, stage: Stage::from_environment() };
                let orders = ByPhases::open(&database, &services, &settings).await?;
                let listener = TcpListener::bind(listen).await?;
                front::run(orders, listener, &settings, services.stage).await?;
            }
            Command::Check { directory } => {
                let books = books(&directory)?;
                let wrong = check(&books, None);
                wrong.iter().for_each(|wrong| println!("{wrong}"));
                println!("{} orders, {} things wrong", orders(&books).len(), wrong.len());
                return Ok(ExitCode::from(u8::from(!wrong.is_empty())));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ServiceOptions {
    async fn run(self, trade: Trade) -> anyhow::Result<()> {
        let listener = TcpListener::bind(self.listen).await?;
        service::run(trade, listener, &self.data, self.faults).await
    }
}
