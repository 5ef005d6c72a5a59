//! `cargo xtask tidy`: the house rules that neither rustfmt nor clippy can check.
//!
//! Every rule is a pure function in a file of its own: text in, violations out. Only `tree` reads
//! files and only `run` knows all the rules.

mod banned;
mod law;
mod links;
mod manifest;
mod portable;
mod roots;
mod run;
mod size;
mod tree;
mod violation;

pub(crate) use run::run;
