//! The bodies of both directions.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::LazyTimer;
use super::upstreams::Lease;

/// Any error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What is sent upstream. Requests without a body need no box.
pub(super) enum SendBody {
    Empty,
    Streamed(UnsyncBoxBody<Bytes, BoxError>, Arc<Progress>),
}

impl SendBody {
    pub(super) fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if body.is_end_stream() {
            return Self::Empty;
        }
        Self::Streamed(body.map_err(Into::into).boxed_unsync(), Arc::default())
    }

    pub(super) fn progress(&self) -> Option<Arc<Progress>> {
        match self {
            Self::Empty => None,
            Self::Streamed(_, progress) => Some(Arc::clone(progress)),
        }
    }
}

impl Body for SendBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self::Streamed(body, progress) = &mut *self else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *body).poll_frame(cx);
        progress.starving.store(polled.is_pending(), Ordering::Relaxed);
        let frame = ready!(polled);
        match &frame {
            Some(Ok(_)) if !body.is_end_stream() => progress.moved(),
            Some(Ok(_)) | None => progress.ended(FINISHED),
            Some(Err(_)) => progress.ended(BROKEN),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Streamed(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streamed(body, _) => body.size_hint(),
        }
    }
}

const FINISHED: u8 = 1;
const BROKEN: u8 = 2;

/// How far the sending of a body has come. An upstream is not late while it is still being sent
/// to.
#[derive(Debug, Default)]
pub(super) struct Progress {
    frames: AtomicU64,
    end: AtomicU8,
    // Whether the upstream would take more than the client has sent.
    starving: AtomicBool,
}

impl Progress {
    fn moved(&self) {
        self.frames.fetch_add(1, Ordering::Relaxed);
    }

    fn ended(&self, how: u8) {
        self.moved();
        self.end.store(how, Ordering::Release);
    }

    pub(super) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Whether the next move is the client's.
    pub(super) fn is_starving(&self) -> bool {
        self.starving.load(Ordering::Relaxed)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.end.load(Ordering::Acquire) == FINISHED
    }

    pub(super) fn is_broken(&self) -> bool {
        self.end.load(Ordering::Acquire) == BROKEN
    }
}

/// The body of an answer: the upstream's, as it arrives, or a short one of ours.
///
/// It holds the upstream's connection until it has ended cleanly, and then gives it back for the
/// next request. Dropped before, it closes the connection.
#[derive(Debug)]
pub struct ProxyBody {
    kind: Kind,
}

enum Kind {
    Done,
    Ours(Bytes),
    Upstream(Upstream),
}

struct Upstream {
    incoming: Incoming,
    lease: Option<Lease>,
    timer: LazyTimer,
    patience: Duration,
    // When the silence of the moment becomes too long.
    deadline: Option<Instant>,
}

impl ProxyBody {
    /// A body without content.
    #[must_use]
    pub fn empty() -> Self {
        Self { kind: Kind::Done }
    }

    /// A short body of ours.
    #[must_use]
    pub fn full(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::empty() } else { Self { kind: Kind::Ours(bytes) } }
    }

    pub(super) fn text(text: &'static str) -> Self {
        Self::full(Bytes::from_static(text.as_bytes()))
    }

    /// A lease without a connection is one whose connection is driven elsewhere.
    pub(super) fn upstream(incoming: Incoming, lease: Lease, patience: Duration) -> Self {
        if incoming.is_end_stream() {
            lease.give_back();
            return Self::empty();
        }
        let timer = LazyTimer::new();
        let lease = Some(lease);
        Self { kind: Kind::Upstream(Upstream { incoming, lease, timer, patience, deadline: None }) }
    }
}

impl Upstream {
    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(connection) = self.lease.as_mut().and_then(Lease::connection) else {
            return Pin::new(&mut self.incoming).poll_frame(cx);
        };
        // Frames arrive only while we drive the connection ourselves, so nobody needs to wake us
        // for them: what wakes us is the socket.
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
        // Nothing more comes: what is left says how the body ended.
        connection.close();
        Pin::new(&mut self.incoming).poll_frame(cx)
    }

    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + self.patience);
        match self.lease.as_mut().and_then(Lease::connection) {
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
            Kind::Done => return Poll::Ready(None),
            Kind::Ours(bytes) => {
                let frame = Frame::data(std::mem::take(bytes));
                self.kind = Kind::Done;
                return Poll::Ready(Some(Ok(frame)));
            }
            Kind::Upstream(upstream) => upstream,
        };
        let Poll::Ready(frame) = upstream.poll_incoming(cx) else {
            ready!(upstream.poll_stalled(cx));
            self.kind = Kind::Done;
            return Poll::Ready(Some(Err(ProxyBodyError::Stalled)));
        };
        upstream.deadline = None;
        let ended = match &frame {
            Some(Ok(_)) => upstream.incoming.is_end_stream(),
            None => true,
            Some(Err(_)) => {
                self.kind = Kind::Done;
                return Poll::Ready(frame.map(|frame| frame.map_err(ProxyBodyError::Upstream)));
            }
        };
        if ended {
            upstream.lease.take().into_iter().for_each(Lease::give_back);
            self.kind = Kind::Done;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(ProxyBodyError::Upstream)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.kind, Kind::Done)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Done => SizeHint::with_exact(0),
            Kind::Ours(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Upstream(upstream) => upstream.incoming.size_hint(),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "Done",
            Self::Ours(_) => "Ours",
            Self::Upstream(_) => "Upstream",
        })
    }
}

/// Why the body of an answer broke off.
#[derive(Debug)]
pub enum ProxyBodyError {
    /// The upstream broke it off.
    Upstream(hyper::Error),
    /// The upstream was silent for too long.
    Stalled,
}

impl fmt::Display for ProxyBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Upstream(_) => f.write_str("the upstream broke off its answer"),
            Self::Stalled => f.write_str("the upstream was silent for too long"),
        }
    }
}

impl std::error::Error for ProxyBodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Upstream(error) => Some(error),
            Self::Stalled => None,
        }
    }
}
