//! The admin API, on an address of its own: health, metrics, records and sagas for operators, and
//! callbacks of the service behind the gateway. Its types are in `justonce-admin-api`.

mod backup;
mod callback;
mod connections;
mod health;
mod keys;
mod metrics;
mod origin;
mod problem;
mod process;
mod request;
mod sagas;
mod server;
mod token;
mod upstreams;

pub(crate) use server::{Admin, AdminAccess, AdminParts, AdminTokens};
pub(crate) use token::Token;
