//! Request and response bodies as the layer hands them on.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Either;
use pin_project_lite::pin_project;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::headers::remove_ours_from_trailers;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

type Polled<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

/// A body that is held in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct WholeBody {
    data: Option<Bytes>,
    trailers: Option<Box<HeaderMap>>,
}

impl WholeBody {
    pub(crate) fn new(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { data: Some(data).filter(|data| !data.is_empty()), trailers: trailers.map(Box::new) }
    }

    pub(crate) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_deref()
    }

    /// Changes the trailers.
    pub(crate) fn with_trailers(mut self, change: impl FnOnce(&mut HeaderMap)) -> Self {
        self.trailers.as_deref_mut().map(change);
        self
    }

    pub(crate) fn data(&self) -> Bytes {
        self.data.clone().unwrap_or_default()
    }
}

impl From<Bytes> for WholeBody {
    fn from(data: Bytes) -> Self {
        Self::new(data, None)
    }
}

impl Body for WholeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Polled<Infallible> {
        let data = self.data.take().map(Frame::data);
        let trailers = || self.trailers.take().map(|trailers| Frame::trailers(*trailers));
        Poll::Ready(data.or_else(trailers).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.data.as_ref().map_or(0, |data| data.len() as u64);
        let mut hint = SizeHint::with_exact(length);
        if self.trailers.is_some() {
            // HTTP/1.1 sends no trailers after a body with a `Content-Length`.
            hint = SizeHint::new();
            hint.set_lower(length);
        }
        hint
    }
}

pin_project! {
    /// The body of a request to the inner service: passed through, or read whole before.
    #[derive(Debug)]
    pub struct RequestBody<B> {
        #[pin]
        inner: Either<B, WholeBody>,
    }
}

impl<B> RequestBody<B> {
    pub(crate) const fn passed(body: B) -> Self {
        Self { inner: Either::Left(body) }
    }

    pub(crate) const fn whole(body: WholeBody) -> Self {
        Self { inner: Either::Right(body) }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<BoxError> {
        self.project().inner.poll_frame(cx).map_ok(|mut frame| {
            if let Some(trailers) = frame.trailers_mut() {
                remove_ours_from_trailers(trailers);
            }
            frame
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

pin_project! {
    /// The body of a response: passed through, whole, or streamed while it is captured.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        inner: Either<B, Either<WholeBody, StreamedBody>>,
        // Whether its trailers have nothing in our name: otherwise they are as they came.
        is_cleaned: bool,
    }
}

impl<B> ResponseBody<B> {
    pub(crate) const fn passed(body: B) -> Self {
        Self { inner: Either::Left(body), is_cleaned: false }
    }

    /// Passed through on a route that protects: our names are ours there.
    pub(crate) const fn unprotected(body: B) -> Self {
        Self { inner: Either::Left(body), is_cleaned: true }
    }

    /// Whether it comes from the service as it is: the response passes without protection, and the
    /// layer has nothing more to do for it.
    #[must_use]
    pub const fn is_passed(&self) -> bool {
        matches!(self.inner, Either::Left(_))
    }

    pub(crate) fn whole(body: impl Into<WholeBody>) -> Self {
        Self { inner: Either::Right(Either::Left(body.into())), is_cleaned: false }
    }

    pub(crate) const fn streamed(body: StreamedBody) -> Self {
        Self { inner: Either::Right(Either::Right(body)), is_cleaned: false }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<BoxError> {
        let this = self.project();
        let mut frame = ready!(this.inner.poll_frame(cx));
        if *this.is_cleaned
            && let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            remove_ours_from_trailers(trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// An item in the queue of a streamed response.
#[derive(Debug)]
pub(crate) enum Piece {
    /// A frame, with the queue space it occupies.
    Frame(Frame<Bytes>, Option<OwnedSemaphorePermit>),
    /// The clean end. A queue that closes without it was aborted.
    End,
}

/// A body that is streamed to the caller while it is captured. It ends cleanly only after the
/// outcome is stored.
#[derive(Debug)]
pub(crate) struct StreamedBody {
    pub(crate) pieces: UnboundedReceiver<Piece>,
    pub(crate) ended: bool,
    /// What it ends with if it is broken off, in place of an error.
    pub(crate) broken_off: Option<Box<HeaderMap>>,
}

impl Body for StreamedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<BoxError> {
        if self.ended {
            return Poll::Ready(None);
        }
        let piece = ready!(self.pieces.poll_recv(cx));
        self.ended = !matches!(piece, Some(Piece::Frame(..)));
        Poll::Ready(match piece {
            Some(Piece::Frame(frame, _space)) => Some(Ok(frame)),
            Some(Piece::End) => None,
            None => Some(match self.broken_off.take() {
                Some(trailers) => Ok(Frame::trailers(*trailers)),
                None => Err("the response was broken off".into()),
            }),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}
