//! The gateway that puts Justonce in front of any HTTP API, and the tools to run it.
//!
//! The binary `justonce` is only a door to this library: [`cli::run`] reads the command line.
//! A request goes from the [`listen`]er through the [`gateway`]'s stack to the [`proxy`]; the rules
//! of that stack come from the [`config`]uration.

pub mod admin;
pub mod check;
pub mod cli;
mod completer;
pub mod config;
pub mod demo;
mod explained;
mod files;
pub mod gateway;
pub mod keys;
pub mod listen;
pub mod logs;
mod metrics;
pub mod migrate;
mod probe;
pub mod proxy;
mod reload;
mod resolutions;
mod rules;
pub mod sagas;
pub mod serve;
mod stores;
mod upkeep;
