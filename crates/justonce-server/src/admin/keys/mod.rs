//! Records: list them, show them, resolve unknown ones, and remove outcomes early.

mod list;
mod outcome;
mod remove;
mod resolve;
mod show;
mod view;

pub(crate) use list::list;
pub(crate) use outcome::outcome;
pub(crate) use remove::remove;
pub(crate) use resolve::{NO_OUTCOME, OUTCOME_MISSING, by_operator, resolve};
pub(crate) use show::{find, show};
pub(crate) use view::{detail, row};
