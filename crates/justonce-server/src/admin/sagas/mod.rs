//! Sagas of any program on the same store: list them, show them, and make stuck ones due again.

mod list;
mod retry;
mod show;
mod view;

pub(crate) use list::list;
pub(crate) use retry::retry;
pub(crate) use show::show;
