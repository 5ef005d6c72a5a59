//! Bodies of requests that do not stand still.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::proxy::LazyTimer;

/// The body of a request. It ends with an error if nothing of it arrives for too long.
#[derive(Debug)]
pub struct TimedBody<B = Incoming> {
    body: B,
    patience: Duration,
    timer: LazyTimer,
    deadline: Option<Instant>,
}

impl<B> TimedBody<B> {
    /// A body that may stand still for so long.
    pub fn new(body: B, patience: Duration) -> Self {
        Self { body, patience, timer: LazyTimer::new(), deadline: None }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for TimedBody<B> {
    type Data = Bytes;
    type Error = TimedBodyError<B::Error>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.deadline = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(TimedBodyError::Broken)));
        }
        let deadline = *this.deadline.get_or_insert_with(|| Instant::now() + this.patience);
        ready!(this.timer.poll(cx, deadline));
        Poll::Ready(Some(Err(TimedBodyError::Stalled)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Why a request's body broke off.
#[derive(Debug)]
pub enum TimedBodyError<E = hyper::Error> {
    /// Nothing of it arrived for too long.
    Stalled,
    /// The client broke it off, or it is malformed.
    Broken(E),
}

impl<E> fmt::Display for TimedBodyError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stalled => "the request's body stood still for too long",
            Self::Broken(_) => "the request's body broke off",
        })
    }
}

impl<E: std::error::Error + 'static> std::error::Error for TimedBodyError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stalled => None,
            Self::Broken(error) => Some(error),
        }
    }
}
