//! Polls a handler until it returns, panics, times out or loses its claim.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::context::Context;
use super::renewal::Active;

/// What a panic carries.
pub(super) type Panic = Box<dyn Any + Send>;

/// How a handler ended.
pub(super) enum Ended<O> {
    /// It returned.
    Returned(O),
    /// It panicked.
    Panicked(Panic),
    /// It took longer than the operation's limit.
    TimedOut,
    /// Another owner took over.
    Lost,
}

pin_project! {
    /// A handler from its call on. It is called inside, so that its future, which may be large,
    /// is put where it stays.
    #[project = HandlingParts]
    pub(super) enum Handling<H, F> {
        Called { with: Option<(H, Context)> },
        Running { #[pin] future: F },
    }
}

impl<H, F> Handling<H, F> {
    pub(super) const fn new(handler: H, context: Context) -> Self {
        Self::Called { with: Some((handler, context)) }
    }
}

impl<H, F> Future for Handling<H, F>
where
    H: FnOnce(Context) -> F,
    F: Future,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<F::Output> {
        loop {
            match self.as_mut().project() {
                HandlingParts::Running { future } => return future.poll(cx),
                HandlingParts::Called { with } => match with.take() {
                    Some((handler, context)) => {
                        let future = handler(context);
                        self.set(Self::Running { future });
                    }
                    // It panicked when it was called.
                    None => return Poll::Pending,
                },
            }
        }
    }
}

/// Runs a handler until it returns, panics, times out, or its claim is lost. In the last two cases
/// the caller drops it.
///
/// It is borrowed: a future that is passed by value is stored twice, and handlers are large.
pub(super) async fn drive<O>(
    mut handler: Pin<&mut impl Future<Output = O>>,
    limit: Duration,
    active: &Active,
) -> Ended<O> {
    // Many handlers return at the first poll: for those no timer is set up.
    let first = poll_fn(|cx| Poll::Ready(poll_caught(handler.as_mut(), cx))).await;
    if let Poll::Ready(ended) = first {
        return ended;
    }
    tokio::select! {
        biased;
        ended = poll_fn(|cx| poll_caught(handler.as_mut(), cx)) => ended,
        () = active.lost() => Ended::Lost,
        () = tokio::time::sleep(limit) => Ended::TimedOut,
    }
}

/// Polls a handler and catches its panic. It is not polled again after one.
fn poll_caught<O>(
    handler: Pin<&mut impl Future<Output = O>>,
    cx: &mut task::Context<'_>,
) -> Poll<Ended<O>> {
    match catch_unwind(AssertUnwindSafe(|| handler.poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(result)) => Poll::Ready(Ended::Returned(result)),
        Err(panic) => Poll::Ready(Ended::Panicked(panic)),
    }
}
