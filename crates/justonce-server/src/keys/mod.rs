//! `justonce keys`: records through the admin API of a gateway that runs.

pub(crate) mod client;
mod options;
pub(crate) mod print;
mod run;

pub use options::{
    AdminOptions, GiveUpOptions, KeysCommand, KeysOptions, ListOptions, OutcomeOptions,
    ResolveOptions, ShowOptions,
};
pub use run::run;
pub(crate) use run::{LITERAL, by, full_id, query, refused, told};
