//! Handlers that count, and values that tell when they are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use justonce_core::Outcome;

/// Counts executions. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    /// One more.
    pub(crate) fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// One less.
    pub(crate) fn sub(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// How many.
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Keeps the highest number seen.
    pub(crate) fn raise(&self, to: usize) {
        self.0.fetch_max(to, Ordering::SeqCst);
    }
}

/// Tells whether something was dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped(Arc<AtomicBool>);

/// Sets its [`Dropped`] when it is dropped.
#[derive(Debug)]
pub(crate) struct DropGuard(Dropped);

impl Dropped {
    /// Something to move into a handler.
    pub(crate) fn guard(&self) -> DropGuard {
        DropGuard(self.clone())
    }

    /// Whether the guard was dropped.
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for DropGuard {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::SeqCst);
    }
}

/// The outcome of most handlers here.
pub(crate) fn done() -> Outcome {
    Outcome::bytes("done")
}
