//! `cargo xtask bench stores`: Redis and PostgreSQL beside their own load tools and a peer, and
//! what the near cache is worth, in one run.

mod engine;
mod layer;
mod postgres;
mod redis;
mod run;

pub(crate) use run::{StoresArgs, run};
