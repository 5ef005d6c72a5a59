//! The real gateway, as a process, between a client and a service that do what the test says.

#![allow(dead_code, reason = "other tests include these parts too")]

mod admin;
mod breaker;
mod client;
mod contract;
mod crash;
mod execution;
mod process;
mod reload;
mod shutdown;
mod upstream;
