//! Work that goes on when its caller leaves.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// The work, as it is polled and sent to a task of its own.
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = Option<T>> + Send>>;

/// Runs work inside the caller's task for as long as the caller waits. When the caller leaves, or
/// has its answer before the work is over, the work goes on in a task of its own.
///
/// Most work ends while its caller waits, and so costs no task.
pub(crate) struct Detached<T: Send + 'static> {
    work: Option<Work<T>>,
    early: Option<oneshot::Receiver<T>>,
}

/// The work panicked.
#[derive(Debug)]
pub(crate) struct Panicked;

impl<T: Send + 'static> Detached<T> {
    /// The work gives its answer at its end, or before through the sender of `early`.
    pub(crate) fn new(work: Work<T>, early: oneshot::Receiver<T>) -> Self {
        Self { work: Some(work), early: Some(early) }
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
        if let Some(work) = &mut self.work {
            match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
                Err(_) => {
                    self.work = None;
                    return Poll::Ready(Err(Panicked));
                }
                Ok(Poll::Ready(answer)) => {
                    self.work = None;
                    if let Some(answer) = answer {
                        return Poll::Ready(Ok(answer));
                    }
                }
                Ok(Poll::Pending) => {}
            }
        }
        let early = self.early.as_mut().map(|early| Pin::new(early).poll(cx));
        match early {
            Some(Poll::Ready(Ok(answer))) => {
                self.let_go();
                Poll::Ready(Ok(answer))
            }
            Some(Poll::Pending) => Poll::Pending,
            // The sender is gone: the answer comes with the end of the work.
            Some(Poll::Ready(Err(_))) | None => {
                self.early = None;
                if self.work.is_some() { Poll::Pending } else { Poll::Ready(Err(Panicked)) }
            }
        }
    }
}

impl<T: Send + 'static> Drop for Detached<T> {
    fn drop(&mut self) {
        self.let_go();
    }
}
