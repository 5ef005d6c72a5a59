//! The body of a response on an HTTP/2 stream.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};
use justonce_http::BoxError;
use tokio::sync::oneshot;

use super::pool::Http2Guard;

/// The body of a response. Dropped before its end, it ends the stream.
pub(in crate::upstream) struct Http2Body {
    stream: RecvStream,
    /// How much of it is still to come, if the head says that.
    left: Option<u64>,
    part: Part,
    /// Told when the body has ended whole, if the request's is still being sent. If it is dropped
    /// untold, that is given up.
    rest: Option<oneshot::Sender<()>>,
    /// The stream's place. It goes back after the stream has ended.
    guard: Arc<Http2Guard>,
}

/// What is read next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Data,
    Trailers,
    /// Nothing: it has ended whole.
    Whole,
    /// Nothing: it was cut.
    Broken,
}

impl Http2Body {
    pub(super) fn new(
        stream: RecvStream,
        headers: &HeaderMap,
        rest: Option<oneshot::Sender<()>>,
        guard: Arc<Http2Guard>,
    ) -> Self {
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let left = length.and_then(|length| length.parse().ok());
        Self { stream, left, part: Part::Data, rest, guard }
    }

    /// The stream was reset. After a whole response that asks for nothing but to send no more of
    /// the request, and h2 forgets then that the response was whole. Its length tells; without one
    /// it may be cut.
    fn reset(&mut self, error: &h2::Error) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if error.reason() == Some(Reason::NO_ERROR) && self.left == Some(0) {
            self.part = Part::Whole;
            return Poll::Ready(None);
        }
        self.part = Part::Broken;
        // As text: the client's own connection must not repeat a reason that was not meant for it,
        // such as one that says that nothing was processed.
        Poll::Ready(Some(Err(error.to_string().into())))
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.part == Part::Data {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    self.guard.heard();
                    // The upstream may send as much more. An error says that nothing more comes.
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return self.reset(&error),
                None => self.part = Part::Trailers,
            }
        }
        if self.part != Part::Trailers {
            return Poll::Ready(None);
        }
        match ready!(self.stream.poll_trailers(cx)) {
            Ok(trailers) => {
                self.part = Part::Whole;
                Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
            }
            Err(error) => self.reset(&error),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self.part {
            Part::Whole | Part::Broken => true,
            Part::Data | Part::Trailers => self.stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            _ if self.is_end_stream() => SizeHint::with_exact(0),
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::new(),
        }
    }
}

impl Drop for Http2Body {
    fn drop(&mut self) {
        let is_whole = self.part == Part::Whole || self.stream.is_end_stream();
        if let Some(rest) = self.rest.take().filter(|_| is_whole) {
            // Ignored: the request's body may have ended at this moment.
            let _ = rest.send(());
        }
    }
}
