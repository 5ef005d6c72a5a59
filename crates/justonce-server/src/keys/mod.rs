//! `justonce keys`: records through the admin API of a gateway that runs.

mod client;
mod options;
mod print;
mod run;

pub use options::{
    KeysCommand, KeysOptions, ListOptions, OutcomeOptions, ResolveOptions, ShowOptions,
};
pub use run::run;
