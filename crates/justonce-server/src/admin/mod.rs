//! The operators' side: health and metrics, on an address of their own.

mod health;
mod numbers;
mod server;
mod token;

pub use server::{Admin, AdminAddress};
