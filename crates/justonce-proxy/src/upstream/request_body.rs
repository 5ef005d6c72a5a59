//! The body of a request on its way to an upstream.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use justonce_http::BoxError;

use crate::forwarded;

/// The body of a request. Requests without one need no allocation.
pub(super) enum RequestBody {
    Empty,
    Streamed(UnsyncBoxBody<Bytes, BoxError>, Arc<SendProgress>),
}

impl RequestBody {
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

    pub(super) fn progress(&self) -> Option<Arc<SendProgress>> {
        match self {
            Self::Empty => None,
            Self::Streamed(_, progress) => Some(Arc::clone(progress)),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self::Streamed(body, progress) = &mut *self else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *body).poll_frame(cx);
        progress.starved.store(polled.is_pending(), Ordering::Relaxed);
        let mut frame = ready!(polled);
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            forwarded::clean_trailers(trailers);
        }
        match &frame {
            Some(Ok(_)) if !body.is_end_stream() => progress.advance(),
            Some(Ok(_)) | None => progress.end(FINISHED),
            Some(Err(_)) => progress.end(BROKEN),
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

/// How much of a body has been sent. The response timeout does not run while the upstream takes
/// more of it.
#[derive(Debug, Default)]
pub(super) struct SendProgress {
    frames: AtomicU64,
    end: AtomicU8,
    // Whether the upstream would take more than the client has sent.
    starved: AtomicBool,
}

impl SendProgress {
    fn advance(&self) {
        self.frames.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self, how: u8) {
        self.advance();
        self.end.store(how, Ordering::Release);
    }

    pub(super) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Whether sending waits for the client.
    pub(super) fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.end.load(Ordering::Acquire) == FINISHED
    }

    pub(super) fn is_broken(&self) -> bool {
        self.end.load(Ordering::Acquire) == BROKEN
    }
}
