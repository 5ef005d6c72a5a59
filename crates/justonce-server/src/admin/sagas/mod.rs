//! The sagas in the store, whichever program runs them: find them, look at them, and make stuck
//! ones due again.

mod list;
mod retry;
mod show;
mod view;

pub(crate) use list::list;
pub(crate) use retry::retry;
pub(crate) use show::show;
