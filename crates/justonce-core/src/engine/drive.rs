//! Runs a handler to whatever end it comes to.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::context::Context;
use super::handler_error::HandlerError;
use super::renewal::Active;
use crate::outcome::Outcome;

/// What a panic carries.
pub(super) type Panic = Box<dyn Any + Send>;

/// How a handler ended.
pub(super) enum Ended {
    /// By itself.
    Itself(Result<Outcome, HandlerError>),
    /// By a panic.
    Panicked(Panic),
    /// Its time was over.
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

/// Runs a handler until it ends, panics, its time is over, or its claim is lost. In the last two
/// cases its caller drops it where it waits.
///
/// It is borrowed: a future that is handed on by value is there twice, and handlers are large.
pub(super) async fn drive(
    mut handler: Pin<&mut impl Future<Output = Result<Outcome, HandlerError>>>,
    limit: Duration,
    active: &Active,
) -> Ended {
    // Many handlers never wait: for those no timer is set up.
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
fn poll_caught(
    handler: Pin<&mut impl Future<Output = Result<Outcome, HandlerError>>>,
    cx: &mut task::Context<'_>,
) -> Poll<Ended> {
    match catch_unwind(AssertUnwindSafe(|| handler.poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(result)) => Poll::Ready(Ended::Itself(result)),
        Err(panic) => Poll::Ready(Ended::Panicked(panic)),
    }
}
