//! The operators' side, on an address of their own: health, metrics, records and resolutions; and
//! the place where the downstream tells what became of an operation.

mod browser;
mod callback;
mod health;
mod keys;
mod numbers;
mod problem;
mod process;
mod sagas;
mod server;
mod token;
pub(crate) mod wire;

pub use server::{Admin, AdminAddress, MAX_CONNECTIONS};

pub(crate) use server::AdminTokens;
pub(crate) use token::Token;
