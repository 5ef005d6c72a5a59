//! Runs a handler to whatever end it comes to.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use super::ran::HandlerError;
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
    cx: &mut std::task::Context<'_>,
) -> Poll<Ended> {
    match catch_unwind(AssertUnwindSafe(|| handler.poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(result)) => Poll::Ready(Ended::Itself(result)),
        Err(panic) => Poll::Ready(Ended::Panicked(panic)),
    }
}
