//! The body of a request on its way into an HTTP/2 stream.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;
use tokio::sync::oneshot;

use super::pool::Http2Guard;
use crate::timer::LazyTimer;
use crate::upstream::request_body::{RequestBody, SendProgress};
use crate::upstream::stall::StallTimer;

/// Sends a body, as much at a time as the upstream takes. Dropped before its end, it ends the
/// stream.
pub(super) struct Sending {
    stream: SendStream<Bytes>,
    body: RequestBody,
    progress: Option<Arc<SendProgress>>,
    /// What the upstream has not taken yet.
    chunk: Bytes,
    /// Whether nothing comes after that.
    is_last: bool,
    is_done: bool,
    /// The stream's place. It goes back after the stream has ended.
    guard: Arc<Http2Guard>,
}

impl Sending {
    pub(super) fn new(
        stream: SendStream<Bytes>,
        body: RequestBody,
        guard: Arc<Http2Guard>,
    ) -> Self {
        let (progress, is_done) = (body.progress(), body.is_end_stream());
        let (chunk, is_last) = (Bytes::new(), false);
        Self { stream, body, progress, chunk, is_last, is_done, guard }
    }

    pub(super) fn progress(&self) -> Option<&SendProgress> {
        self.progress.as_deref()
    }

    pub(super) const fn guard(&self) -> &Arc<Http2Guard> {
        &self.guard
    }

    /// The body to be sent once more, unless some of it is gone.
    pub(super) fn into_body(self) -> Option<RequestBody> {
        self.body.again()
    }

    /// Ready once all is handed over, or nothing more will be taken: the response says why.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_done {
            ready!(self.poll_send(cx));
            self.is_done = true;
        }
        Poll::Ready(())
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(());
            }
            if !self.chunk.is_empty() {
                if ready!(self.poll_send_chunk(cx)) {
                    return Poll::Ready(());
                }
                continue;
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        (self.chunk, self.is_last) = (data, self.body.is_end_stream());
                        if self.chunk.is_empty() && self.is_last {
                            return self.ended();
                        }
                    }
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            // Refused only if the stream has ended.
                            let _ = self.stream.send_trailers(trailers);
                            return Poll::Ready(());
                        }
                    }
                },
                Some(Err(_)) => {
                    self.stream.send_reset(Reason::CANCEL);
                    return Poll::Ready(());
                }
                None => return self.ended(),
            }
        }
    }

    fn ended(&mut self) -> Poll<()> {
        let _ = self.stream.send_data(Bytes::new(), true);
        Poll::Ready(())
    }

    /// Hands over as much of the chunk as the upstream takes now. Returns whether that was the end.
    fn poll_send_chunk(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.stream.reserve_capacity(self.chunk.len());
        let free = self.stream.capacity();
        if free == 0 {
            let capacity = ready!(self.stream.poll_capacity(cx));
            return Poll::Ready(!matches!(capacity, Some(Ok(_))));
        }
        let part = self.chunk.split_to(free.min(self.chunk.len()));
        let is_end = self.is_last && self.chunk.is_empty();
        self.progress.iter().for_each(|progress| progress.advance());
        let sent = self.stream.send_data(part, is_end);
        Poll::Ready(is_end || sent.is_err())
    }

    /// Sends the rest of a body whose response has already begun, in a task of its own: a client
    /// that reads the response only after its own last byte would otherwise wait for ever.
    ///
    /// What is returned tells whether the response has ended whole; dropped before, it ends this.
    pub(super) fn send_rest(mut self, patience: Duration) -> Option<oneshot::Sender<()>> {
        if self.is_done {
            return None;
        }
        let (over, mut is_over) = oneshot::channel();
        tokio::spawn(async move {
            let (mut stall, mut timer) = (StallTimer::new(patience), LazyTimer::new());
            let mut response_is_over = false;
            poll_fn(|cx| {
                if self.poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                if !response_is_over && let Poll::Ready(over) = Pin::new(&mut is_over).poll(cx) {
                    if over.is_err() {
                        return Poll::Ready(());
                    }
                    response_is_over = true;
                }
                // A call whose response goes on may pause for as long as its client likes.
                let progress = self.progress.as_deref();
                if !response_is_over && progress.is_some_and(SendProgress::is_starved) {
                    return Poll::Pending;
                }
                stall.poll_expired(&mut timer, progress, cx)
            })
            .await;
        });
        Some(over)
    }
}
