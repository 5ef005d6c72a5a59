//! Benchmarks beside peers and floors, each as a ratio in one run.
//!
//! Run them through `cargo xtask bench core`.

mod adaptive;
mod big;
mod core;
mod embedded;
mod floor;
mod gateway;
mod load;
mod machine;
mod memory;
mod report;
mod saga;
mod sqlite;
mod stores;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;

/// The allocator of the binary `justonce`, for everything that is measured here.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

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
    /// The gateway beside nginx, and the layer beside no layer.
    Gateway(gateway::GatewayArgs),
    /// Redis and PostgreSQL beside their own load tools and a peer, and the near cache.
    Stores(stores::StoresArgs),
    /// Sagas on the embedded store and PostgreSQL beside bare commits, DBOS and Restate.
    Saga(saga::SagaArgs),
    /// A part of the gateway's benchmark: the service behind the proxies.
    #[command(hide = true)]
    Origin,
    /// A part of the gateway's benchmark: an axum service with the layer.
    #[command(hide = true)]
    Layer(gateway::LayerArgs),
}

fn main() -> ExitCode {
    let result = match Args::parse().what {
        What::Core(args) => core::run(&args),
        What::Gateway(args) => gateway::run(&args),
        What::Stores(args) => stores::run(&args),
        What::Saga(args) => saga::run(&args),
        What::Origin => gateway::serve_origin().map(|()| ExitCode::SUCCESS),
        What::Layer(args) => gateway::serve_layer(&args).map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
