//! The records, for operators: find them, look at them, say what became of those that nobody
//! knows about, and give up those that have ended.

mod expire;
mod list;
mod outcome;
mod resolve;
mod show;
mod view;

pub(crate) use expire::{erase, expire};
pub(crate) use list::{cursor, list};
pub(crate) use outcome::outcome;
pub(crate) use resolve::{Resolved, complete, fail, read, release, resolve, text};
pub(crate) use show::{Shown, find, show};
pub(crate) use view::{detail, row};
