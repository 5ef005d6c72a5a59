//! How far long work is.

/// How far a backup, a check or a restore is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// So many bytes are done.
    pub done: u64,
    /// Of so many.
    pub total: u64,
}

/// Counts what is done, and tells it.
pub(super) struct Counted<'a> {
    pub(super) now: Progress,
    pub(super) tell: &'a mut dyn FnMut(Progress),
}

impl Counted<'_> {
    pub(super) fn add(&mut self, bytes: u64) {
        self.now.done += bytes;
        (self.tell)(self.now);
    }
}
