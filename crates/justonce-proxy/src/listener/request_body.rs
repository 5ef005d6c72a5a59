//! Request bodies with a timeout.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;
use tokio::time::Instant;

use crate::timer::LazyTimer;

/// The body of a request. It fails if nothing of it arrives for too long.
#[derive(Debug)]
pub struct TimeoutBody<B = Incoming> {
    body: B,
    /// None for one that may pause for ever.
    timeout: Option<Duration>,
    is_stream: bool,
    timer: LazyTimer,
    deadline: Option<Instant>,
}

impl<B> TimeoutBody<B> {
    /// A body that may pause for this long.
    pub fn new(body: B, timeout: Duration) -> Self {
        let (timeout, timer) = (Some(timeout), LazyTimer::new());
        Self { body, timeout, is_stream: false, timer, deadline: None }
    }

    /// It may pause for ever once something of it has come: a call that streams.
    #[must_use]
    pub fn stream(self, is_stream: bool) -> Self {
        Self { is_stream, ..self }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for TimeoutBody<B> {
    type Data = Bytes;
    type Error = TimeoutBodyError<B::Error>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.deadline = None;
            if this.is_stream {
                this.timeout = None;
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(TimeoutBodyError::Broken)));
        }
        let Some(timeout) = this.timeout else { return Poll::Pending };
        let deadline = *this.deadline.get_or_insert_with(|| Instant::now() + timeout);
        ready!(this.timer.poll(cx, deadline));
        Poll::Ready(Some(Err(TimeoutBodyError::TimedOut)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Why the body of a request failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TimeoutBodyError<E = hyper::Error> {
    /// Nothing of it arrived for too long.
    #[error("the request body timed out")]
    TimedOut,
    /// The client broke it off, or it is malformed.
    #[error("the request's body broke off")]
    Broken(#[source] E),
}
