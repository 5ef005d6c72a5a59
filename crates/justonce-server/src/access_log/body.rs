//! Bodies whose bytes are counted for the access log.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::line::Line;
use crate::handover::InFlight;

pin_project! {
    /// The body of a request.
    #[derive(Debug)]
    pub(crate) struct CountedBody<B> {
        #[pin]
        body: B,
        // Nothing if the request is not logged.
        received: Option<Arc<AtomicU64>>,
    }
}

impl<B> CountedBody<B> {
    pub(super) fn new(body: B, received: Option<Arc<AtomicU64>>) -> Self {
        Self { body, received }
    }
}

impl<B: Body<Data = Bytes>> Body for CountedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(cx));
        if let (Some(received), Some(Ok(frame))) = (this.received, &frame)
            && let Some(data) = frame.data_ref()
        {
            received.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

pin_project! {
    /// The body of a response. The line is written when it has ended.
    #[derive(Debug)]
    pub(crate) struct LoggedBody<B> {
        #[pin]
        body: B,
        // Nothing if the request is not logged.
        line: Option<Box<Line>>,
        // Nothing if it only passes through.
        in_flight: Option<InFlight>,
    }
}

impl<B: Body> LoggedBody<B> {
    pub(super) fn new(body: B, line: Option<Box<Line>>, in_flight: Option<InFlight>) -> Self {
        let mut logged = Self { body, line, in_flight };
        if logged.body.is_end_stream() {
            // Nobody will ask for it.
            logged.line.take().into_iter().for_each(Line::end);
        }
        logged
    }
}

impl<B: Body> Body for LoggedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        let Some(line) = this.line.as_mut() else { return Poll::Ready(frame) };
        match &frame {
            Some(Ok(frame)) => line.sent(frame.data_ref().map_or(0, Buf::remaining)),
            // Written as one that was broken off.
            Some(Err(_)) => drop(this.line.take()),
            None => {}
        }
        if frame.is_none() || this.body.is_end_stream() {
            this.line.take().into_iter().for_each(Line::end);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
