//! `cargo xtask tidy`: the style rules that neither rustfmt nor clippy can check.
//!
//! Every rule is a pure function in a file of its own: text in, violations out. Only `tree` reads
//! files and only `run` knows all the rules.

mod banned;
mod cycles;
mod generated;
mod law;
mod links;
mod manifest;
mod map;
mod modules;
mod named_files;
pub(crate) mod packages;
mod portable;
mod published;
mod reasons;
mod roots;
mod run;
mod scan;
mod size;
mod tiers;
mod tree;
mod violation;

pub(crate) use run::{Options, run};
