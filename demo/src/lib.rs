//! `justonce demo`: what the gateway is for, in one command.
//!
//! A toy payments API charges for every request it gets. A gateway runs in front of it. A lossy
//! client pays through the gateway: it repeats requests, sends them twice and disconnects in the
//! middle, and once the gateway is killed with SIGKILL and restarted. Then the history of requests,
//! charges and replies is judged.
//!
//! - `demo` starts everything and stops it again;
//! - `toy`, `behaviour`, `ledger`: the payments API, its faults, and its charges;
//! - `gateway`: the gateway, as a child process of the same executable;
//! - `client`, `exchange`, `answer`, `plan`, `chance`: the lossy client, random from a seed;
//! - `seen`, `verdict`: what the client saw, and the verdict on the history;
//! - `progress`, `report`: the output.
//!
//! ```
//! use clap::Parser;
//! use justonce_demo::DemoOptions;
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     demo: DemoOptions,
//! }
//!
//! let default = Cli::parse_from(["demo"]).demo;
//! assert_eq!((default.operations, default.once), (300, false));
//! let customised = Cli::parse_from(["demo", "--once", "--operations", "60", "--seed", "7"]).demo;
//! assert_eq!((customised.operations, customised.once, customised.seed), (60, true, Some(7)));
//! ```

mod answer;
mod behaviour;
mod chance;
mod client;
mod demo;
mod exchange;
mod gateway;
mod ledger;
mod options;
mod plan;
mod progress;
mod report;
mod seen;
mod toy;
mod verdict;

pub use demo::run;
pub use options::DemoOptions;
