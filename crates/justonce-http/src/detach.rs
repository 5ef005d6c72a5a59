//! Work that goes on when its caller leaves.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// The work, as it is polled and sent to a task of its own.
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = Option<T>> + Send>>;

/// An answer that is there before the work is over. The work gives it while it is polled, so nobody
/// has to be woken for it; in a box, because most work gives none.
#[derive(Debug)]
pub(crate) struct Early<T>(Arc<Mutex<Option<Box<T>>>>);

impl<T> Early<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// Gives the answer. Where the caller has left it is dropped at once, so that whoever fills its
    /// body sees that nobody reads it.
    pub(crate) fn give(&self, answer: T) {
        if Arc::strong_count(&self.0) > 1 {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(answer));
        }
    }

    fn take(&self) -> Option<T> {
        let answer = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        answer.map(|answer| *answer)
    }
}

impl<T> Clone for Early<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Runs work inside the caller's task for as long as the caller waits. When the caller leaves, or
/// has its answer before the work is over, the work goes on in a task of its own.
///
/// Most work ends while its caller waits, and so costs no task.
pub(crate) struct Detached<T: Send + 'static> {
    work: Option<Work<T>>,
    early: Early<T>,
}

/// The work panicked.
#[derive(Debug)]
pub(crate) struct Panicked;

impl<T: Send + 'static> Detached<T> {
    /// The work gives its answer at its end, or before through `early`.
    pub(crate) fn new(work: Work<T>, early: Early<T>) -> Self {
        Self { work: Some(work), early }
    }

    fn let_go(&mut self) {
        let Some(work) = self.work.take() else { return };
        // Without a runtime nothing can go on; the claim inside says so to its store.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(work);
        }
    }
}

impl<T: Send + 'static> Future for Detached<T> {
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else { return Poll::Ready(Err(Panicked)) };
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        if !matches!(polled, Ok(Poll::Pending)) {
            self.work = None;
        }
        let answer = match polled {
            Ok(Poll::Pending) => match self.early.take() {
                Some(answer) => Some(answer),
                None => return Poll::Pending,
            },
            Ok(Poll::Ready(answer)) => answer.or_else(|| self.early.take()),
            Err(_) => None,
        };
        self.let_go();
        Poll::Ready(answer.ok_or(Panicked))
    }
}

impl<T: Send + 'static> Drop for Detached<T> {
    fn drop(&mut self) {
        self.let_go();
    }
}
