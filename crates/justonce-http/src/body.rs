//! The bodies on both sides of the layer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::headers::remove_ours_behind;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that is there as a whole.
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

    pub(crate) fn data(&self) -> Bytes {
        self.data.clone().unwrap_or_default()
    }

    fn next(&mut self) -> Option<Frame<Bytes>> {
        match self.data.take() {
            Some(data) => Some(Frame::data(data)),
            None => self.trailers.take().map(|trailers| Frame::trailers(*trailers)),
        }
    }

    fn is_end(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }

    fn size(&self) -> SizeHint {
        let length = self.data.as_ref().map_or(0, |data| data.len() as u64);
        match self.trailers {
            None => SizeHint::with_exact(length),
            // HTTP/1.1 has no room for trailers after a body whose length is announced.
            Some(_) => {
                let mut hint = SizeHint::new();
                hint.set_lower(length);
                hint
            }
        }
    }
}

impl From<Bytes> for WholeBody {
    fn from(data: Bytes) -> Self {
        Self::new(data, None)
    }
}

pin_project! {
    /// The body of a request as the inner service gets it: untouched, or read whole before.
    #[derive(Debug)]
    pub struct RequestBody<B> {
        #[pin]
        kind: RequestKind<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = RequestParts]
    enum RequestKind<B> {
        Passed { #[pin] body: B },
        Whole { body: WholeBody },
    }
}

impl<B> RequestBody<B> {
    pub(crate) const fn passed(body: B) -> Self {
        Self { kind: RequestKind::Passed { body } }
    }

    pub(crate) const fn whole(body: WholeBody) -> Self {
        Self { kind: RequestKind::Whole { body } }
    }
}

impl<B: Body<Data = Bytes>> Body for RequestBody<B>
where
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            RequestParts::Passed { body } => body.poll_frame(cx).map(|frame| {
                let mut frame = frame?;
                if let Ok(Some(trailers)) = frame.as_mut().map(Frame::trailers_mut) {
                    remove_ours_behind(trailers);
                }
                Some(frame.map_err(Into::into))
            }),
            RequestParts::Whole { body } => Poll::Ready(body.next().map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            RequestKind::Passed { body } => body.is_end_stream(),
            RequestKind::Whole { body } => body.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            RequestKind::Passed { body } => body.size_hint(),
            RequestKind::Whole { body } => body.size(),
        }
    }
}

/// A piece of a streamed answer on its way to the caller.
#[derive(Debug)]
pub(crate) enum Piece {
    /// A frame, with the room it takes in the queue.
    Frame(Frame<Bytes>, Option<OwnedSemaphorePermit>),
    /// The clean end. A queue that ends without it was broken off.
    End,
}

pin_project! {
    /// The body of an answer: untouched, whole, or streamed while it is captured.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: ResponseKind<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = ResponseParts]
    enum ResponseKind<B> {
        Passed { #[pin] body: B },
        Whole { body: WholeBody },
        Streamed { body: StreamedBody },
    }
}

/// A body that is streamed to the caller while it is captured. It ends cleanly only after the
/// outcome is stored.
#[derive(Debug)]
pub(crate) struct StreamedBody {
    pub(crate) pieces: UnboundedReceiver<Piece>,
    pub(crate) ended: bool,
}

impl<B> ResponseBody<B> {
    pub(crate) const fn passed(body: B) -> Self {
        Self { kind: ResponseKind::Passed { body } }
    }

    pub(crate) fn whole(body: impl Into<WholeBody>) -> Self {
        Self { kind: ResponseKind::Whole { body: body.into() } }
    }

    pub(crate) const fn streamed(body: StreamedBody) -> Self {
        Self { kind: ResponseKind::Streamed { body } }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B>
where
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            ResponseParts::Passed { body } => {
                body.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            ResponseParts::Whole { body } => Poll::Ready(body.next().map(Ok)),
            ResponseParts::Streamed { body } => {
                if body.ended {
                    return Poll::Ready(None);
                }
                Poll::Ready(match ready!(body.pieces.poll_recv(cx)) {
                    Some(Piece::Frame(frame, _room)) => Some(Ok(frame)),
                    Some(Piece::End) => {
                        body.ended = true;
                        None
                    }
                    None => {
                        body.ended = true;
                        Some(Err("the answer was broken off".into()))
                    }
                })
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            ResponseKind::Passed { body } => body.is_end_stream(),
            ResponseKind::Whole { body } => body.is_end(),
            ResponseKind::Streamed { body } => body.ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            ResponseKind::Passed { body } => body.size_hint(),
            ResponseKind::Whole { body } => body.size(),
            ResponseKind::Streamed { .. } => SizeHint::default(),
        }
    }
}
