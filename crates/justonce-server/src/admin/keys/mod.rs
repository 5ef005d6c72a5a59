//! The records, for operators: find them, look at them, and say what became of those that nobody
//! knows about.

mod list;
mod outcome;
mod resolve;
mod show;
mod view;

pub(crate) use list::{cursor, list};
pub(crate) use outcome::outcome;
pub(crate) use resolve::{Resolved, complete, fail, read, release, resolve, text};
pub(crate) use show::{Shown, find, show};
pub(crate) use view::{detail, row};
