//! Work that continues when its caller leaves.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

pub(crate) type Work<T> = Pin<Box<dyn Future<Output = Option<T>> + Send>>;

/// A response that is available before the work ends. The work sets it while it is polled, so no
/// wake-up is needed. Boxed, because most work sets none.
#[derive(Debug)]
pub(crate) struct EarlyResponse<T>(Mutex<Option<Box<T>>>);

impl<T> EarlyResponse<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    /// Sets the response. If the caller has left it is dropped at once, so that the writer of its
    /// body sees that nothing reads it.
    pub(crate) fn set(self: &Arc<Self>, response: T) {
        if Arc::strong_count(self) > 1 {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(response));
        }
    }

    fn take(&self) -> Option<T> {
        let response = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        response.map(|response| *response)
    }
}

/// Runs work inside the caller's task for as long as the caller waits. When the caller leaves, or
/// gets its response before the work ends, the work continues in a task of its own.
///
/// Most work ends while its caller waits, and so costs no task.
pub(crate) struct Detached<T: Send + 'static> {
    work: Option<Work<T>>,
    early: Arc<EarlyResponse<T>>,
}

impl<T: Send + 'static> Detached<T> {
    /// The work returns its response at its end, or sets it before in `early`.
    pub(crate) const fn new(work: Work<T>, early: Arc<EarlyResponse<T>>) -> Self {
        Self { work: Some(work), early }
    }

    fn spawn(&mut self) {
        let Some(work) = self.work.take() else { return };
        // Without a runtime the work is dropped, and the claim inside is abandoned.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(work);
        }
    }
}

impl<T: Send + 'static> Future for Detached<T> {
    /// The response, or nothing if the work panicked.
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else { return Poll::Ready(None) };
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        if !matches!(polled, Ok(Poll::Pending)) {
            self.work = None;
        }
        let response = match polled {
            Ok(Poll::Pending) => match self.early.take() {
                Some(response) => Some(response),
                None => return Poll::Pending,
            },
            Ok(Poll::Ready(response)) => response.or_else(|| self.early.take()),
            Err(_) => None,
        };
        self.spawn();
        Poll::Ready(response)
    }
}

impl<T: Send + 'static> Drop for Detached<T> {
    fn drop(&mut self) {
        self.spawn();
    }
}
