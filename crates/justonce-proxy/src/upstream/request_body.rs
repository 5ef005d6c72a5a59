//! The body of a request on its way to an upstream.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use justonce_http::BoxError;

use super::headers::clean_trailers;
use crate::forwarded;

/// The body of a request. Requests without one need no allocation.
pub(super) enum RequestBody {
    Empty,
    Streamed(StreamedBody),
}

pub(super) struct StreamedBody {
    body: UnsyncBoxBody<Bytes, BoxError>,
    progress: Arc<SendProgress>,
    read: Read,
}

/// What has been read of a body.
enum Read {
    Nothing,
    /// All of it, at once.
    Whole(Bytes),
    Some,
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
        let body = body.map_err(Into::into).boxed_unsync();
        Self::Streamed(StreamedBody { body, progress: Arc::default(), read: Read::Nothing })
    }

    /// The body from its beginning, to be sent once more, unless some of it is gone.
    pub(super) fn again(self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Streamed(body) => match body.read {
                Read::Nothing => Some(Self::Streamed(body)),
                Read::Whole(bytes) => Some(Self::new(Full::new(bytes))),
                Read::Some => None,
            },
        }
    }

    pub(super) fn progress(&self) -> Option<Arc<SendProgress>> {
        match self {
            Self::Empty => None,
            Self::Streamed(body) => Some(Arc::clone(&body.progress)),
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
        let Self::Streamed(StreamedBody { body, progress, read }) = &mut *self else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(&mut *body).poll_frame(cx);
        progress.starved.store(polled.is_pending(), Ordering::Relaxed);
        let mut frame = ready!(polled);
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            forwarded::clean_trailers(trailers);
            // HTTP/2 refuses trailers with such names, and then the request would not end.
            clean_trailers(trailers);
        }
        *read = match (&*read, &frame) {
            (Read::Nothing, Some(Ok(frame))) if body.is_end_stream() => {
                frame.data_ref().map_or(Read::Some, |data| Read::Whole(data.clone()))
            }
            (Read::Whole(whole), None) => Read::Whole(whole.clone()),
            _ => Read::Some,
        };
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
            Self::Streamed(body) => body.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streamed(body) => body.body.size_hint(),
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
    pub(super) fn advance(&self) {
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
