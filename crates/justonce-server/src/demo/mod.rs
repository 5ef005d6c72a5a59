//! `justonce demo`: what the gateway is for, in one command.
//!
//! A toy payments API keeps a ledger. A gateway stands before it. A lossy client pays through the
//! gateway: it repeats, it duplicates, it hangs up in the middle, and once the gateway is killed
//! with SIGKILL and started again. Then the ledger is counted and compared with what the client
//! saw.
//!
//! - `run` puts it together and takes it down again, whatever happens;
//! - `toy`, `mood`, `ledger`: the payments API, its whims, and what it charged;
//! - `gateway`: the gateway, as a child process;
//! - `client`, `exchange`, `answer`, `plan`, `dice`: the lossy client, all its chances from a seed;
//! - `seen`, `verdict`: what the client saw, and the pure function that judges it by the ledger;
//! - `progress`, `report`: what is shown.
//!
//! ```
//! use clap::Parser;
//! use justonce_server::demo::DemoOptions;
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
mod client;
mod dice;
mod exchange;
mod gateway;
mod ledger;
mod mood;
mod options;
mod plan;
mod progress;
mod report;
mod run;
mod seen;
mod toy;
mod verdict;

pub use options::DemoOptions;
pub use run::run;
