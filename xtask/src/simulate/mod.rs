//! `cargo xtask simulate`: builds the simulation and runs it, or shows that it finds defects.

mod command;
mod mutants;
mod show;

pub(crate) use command::{Options, run};
