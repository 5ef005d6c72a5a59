//! The binary `justonce`: the gateway, its admin API and the command line. Its parts that stand
//! alone are crates of their own; [`run`] reads the command line.

mod access_log;
mod admin;
mod background;
mod cli;
mod completer;
mod files;
mod gateway;
mod handover;
mod identity;
mod listeners;
mod logs;
mod metrics;
mod probe;
mod reload;
mod resolutions;
mod rules;
mod serve;
mod signals;
mod sockets;
mod stack;
mod store_slot;
mod stores;
mod systemd;
mod traces;
mod upstream_problems;
mod upstreams;

pub use cli::run;
use justonce_config as config;
