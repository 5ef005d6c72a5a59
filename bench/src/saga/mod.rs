//! `cargo xtask bench saga`: a saga of three trivial steps on the embedded store and on PostgreSQL,
//! beside what the store's durable commits allow, DBOS and Restate, in one run.

mod dbos;
mod embedded;
mod ours;
mod restate;
mod run;

pub(crate) use run::{SagaArgs, run};
