//! The body of a response on its way to the client.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use justonce_http::BoxError;
use thiserror::Error;
use tokio::time::Instant;

use super::exchange_time::RunningExchange;
use super::headers::clean_trailers;
use super::upstream_body::UpstreamBody;
use super::upstreams::PooledConnection;
use crate::timer::LazyTimer;

/// The body of a response: the upstream's, as it arrives, or a short one of the proxy itself.
///
/// It holds the upstream connection until it has ended cleanly; then the connection goes back to
/// the pool. Dropped earlier, it closes the connection.
#[derive(Debug)]
pub struct ProxyBody {
    kind: Kind,
    // Dropped at the end.
    running: Option<RunningExchange>,
}

enum Kind {
    Ended,
    Full(Bytes),
    Upstream(Upstream),
}

struct Upstream {
    incoming: UpstreamBody,
    pooled: Option<PooledConnection>,
    timer: LazyTimer,
    read_timeout: Duration,
    // Set while nothing arrives.
    deadline: Option<Instant>,
}

impl ProxyBody {
    /// A body without content.
    #[must_use]
    pub fn empty() -> Self {
        Self { kind: Kind::Ended, running: None }
    }

    /// A body of these bytes.
    #[must_use]
    pub fn full(bytes: Bytes) -> Self {
        let kind = if bytes.is_empty() { Kind::Ended } else { Kind::Full(bytes) };
        Self { kind, running: None }
    }

    pub(super) fn text(text: &'static str) -> Self {
        Self::full(Bytes::from_static(text.as_bytes()))
    }

    /// Without a connection in `pooled`, another task drives it.
    pub(super) fn upstream(
        incoming: UpstreamBody,
        pooled: PooledConnection,
        read_timeout: Duration,
    ) -> Self {
        if incoming.is_end_stream() {
            pooled.give_back();
            return Self::empty();
        }
        let (pooled, timer) = (Some(pooled), LazyTimer::new());
        let upstream = Upstream { incoming, pooled, timer, read_timeout, deadline: None };
        Self { kind: Kind::Upstream(upstream), running: None }
    }

    /// Keeps the time until the upstream's response has ended.
    pub(super) fn timed(mut self, running: Option<RunningExchange>) -> Self {
        if matches!(self.kind, Kind::Upstream(_)) {
            self.running = running;
        }
        self
    }

    fn end(&mut self) {
        self.kind = Kind::Ended;
        self.running = None;
    }
}

impl Upstream {
    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(connection) = self.pooled.as_mut().and_then(PooledConnection::connection) else {
            return Pin::new(&mut self.incoming).poll_frame(cx);
        };
        // Frames arrive only while this task drives the connection: the socket wakes it, and the
        // channel of the body does not have to.
        let mut unwoken = Context::from_waker(Waker::noop());
        let frame = Pin::new(&mut self.incoming).poll_frame(&mut unwoken);
        if frame.is_ready() {
            return frame;
        }
        connection.drive(cx);
        let frame = Pin::new(&mut self.incoming).poll_frame(&mut unwoken);
        if frame.is_ready() || !connection.has_ended() {
            return frame;
        }
        // Nothing more arrives: what is left says how the body ended.
        connection.close();
        Pin::new(&mut self.incoming).poll_frame(cx)
    }

    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + self.read_timeout);
        match self.pooled.as_mut().and_then(PooledConnection::connection) {
            Some(connection) => connection.timer().poll(cx, deadline),
            None => self.timer.poll(cx, deadline),
        }
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = ProxyBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyBodyError>>> {
        let upstream = match &mut self.kind {
            Kind::Ended => return Poll::Ready(None),
            Kind::Full(bytes) => {
                let frame = Frame::data(std::mem::take(bytes));
                self.kind = Kind::Ended;
                return Poll::Ready(Some(Ok(frame)));
            }
            Kind::Upstream(upstream) => upstream,
        };
        let Poll::Ready(mut frame) = upstream.poll_incoming(cx) else {
            ready!(upstream.poll_stalled(cx));
            self.end();
            return Poll::Ready(Some(Err(ProxyBodyError::Stalled)));
        };
        upstream.deadline = None;
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            clean_trailers(trailers);
        }
        let ended = match &frame {
            Some(Ok(_)) => upstream.incoming.is_end_stream(),
            None => true,
            Some(Err(_)) => {
                self.end();
                return Poll::Ready(frame.map(|frame| frame.map_err(ProxyBodyError::Upstream)));
            }
        };
        if ended {
            upstream.pooled.take().into_iter().for_each(PooledConnection::give_back);
            self.end();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(ProxyBodyError::Upstream)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.kind, Kind::Ended)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Ended => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Upstream(upstream) => upstream.incoming.size_hint(),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "Ended",
            Self::Full(_) => "Full",
            Self::Upstream(_) => "Upstream",
        })
    }
}

/// Why the body of a response failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProxyBodyError {
    /// The upstream broke it off.
    #[error("the upstream broke off its response")]
    Upstream(#[source] BoxError),
    /// Nothing of it arrived for too long.
    #[error("the response body timed out")]
    Stalled,
}
