//! Captures a response while it is sent to its caller.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::body::{BoxError, Piece, StreamedBody, WholeBody};
use crate::outcome::Captured;
use crate::read::BodyBuffer;

/// Responses up to this many bytes are held back until their outcome is stored, if they arrive at
/// once or declare their length: then the caller can still be told that something failed.
const HELD_BACK_BYTES: usize = 64 * 1024;
/// How many bytes are queued for a slow caller before reading from the service pauses. Not less
/// than what is stored: a caller that does not read must not prevent storing.
const MIN_QUEUED_BYTES: usize = 1024 * 1024;
/// How long a caller may read nothing while the service is paused, before it is given up.
const MAX_STALL: Duration = Duration::from_secs(30);

/// The first part of a response body.
pub(crate) enum BodyStart<B> {
    Complete(WholeBody),
    Partial(PartialBody<B>),
    Aborted,
}

/// A body of which some frames have been read.
pub(crate) struct PartialBody<B> {
    frames: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    rest: Pin<Box<B>>,
}

/// Reads a body that arrives at once, or the beginning of one that does not.
pub(crate) async fn read_start<B>(body: B, declared: Option<u64>) -> BodyStart<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let is_short = declared.is_some_and(|size| size <= HELD_BACK_BYTES as u64);
    let mut body = Box::pin(body);
    let mut frames: Vec<Bytes> = Vec::new();
    let mut size = 0;
    let mut trailers = None;
    let ended = poll_fn(|cx| {
        loop {
            match body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        size += data.len();
                        frames.push(data);
                        if size > HELD_BACK_BYTES {
                            return Poll::Ready(Some(false));
                        }
                    }
                    Err(frame) => trailers = frame.into_trailers().ok(),
                },
                Poll::Ready(None) => return Poll::Ready(Some(true)),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(None),
                Poll::Pending if is_short => return Poll::Pending,
                Poll::Pending => return Poll::Ready(Some(false)),
            }
        }
    })
    .await;
    match ended {
        None => BodyStart::Aborted,
        Some(false) => BodyStart::Partial(PartialBody { frames, trailers, rest: body }),
        Some(true) if declared.is_some_and(|length| length != size as u64) => BodyStart::Aborted,
        Some(true) => {
            let mut buffer = BodyBuffer::default();
            frames.into_iter().for_each(|frame| buffer.push(frame));
            BodyStart::Complete(WholeBody::new(buffer.into_bytes(), trailers))
        }
    }
}

/// Forwards a body to the caller while it captures it.
pub(crate) struct Forwarder {
    caller: Option<UnboundedSender<Piece>>,
    queue_space: Arc<Semaphore>,
    queue_bytes: usize,
    captured: Option<BodyBuffer>,
    limit: usize,
    size: u64,
    declared: Option<u64>,
    /// The frame that completes the declared length: it is sent after the outcome is stored.
    last: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Forwarder {
    /// A forwarder that captures at most `limit` bytes, and the body for the caller. If it is
    /// broken off it ends with these trailers, or fails.
    pub(crate) fn new(
        limit: usize,
        declared: Option<u64>,
        broken_off: Option<HeaderMap>,
    ) -> (Self, StreamedBody) {
        let (caller, pieces) = mpsc::unbounded_channel();
        let queue_bytes = limit.max(MIN_QUEUED_BYTES);
        let forwarder = Self {
            caller: Some(caller),
            queue_space: Arc::new(Semaphore::new(queue_bytes)),
            queue_bytes,
            captured: Some(BodyBuffer::default()),
            limit,
            size: 0,
            declared,
            last: None,
            trailers: None,
        };
        let broken_off = broken_off.map(Box::new);
        (forwarder, StreamedBody { pieces, ended: false, broken_off })
    }

    /// Forwards the whole body; false if it was aborted.
    pub(crate) async fn run<B>(&mut self, partial: PartialBody<B>) -> bool
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let PartialBody { frames, trailers, rest: mut body } = partial;
        self.trailers = trailers;
        for frame in frames {
            self.data(frame).await;
        }
        while let Some(frame) = body.frame().await.map(Result::ok) {
            let Some(frame) = frame else { return false };
            match frame.into_data() {
                Ok(data) => self.data(data).await,
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
        self.declared.is_none_or(|declared| declared == self.size)
    }

    async fn data(&mut self, data: Bytes) {
        if data.is_empty() {
            // It must not replace the frame that is held back.
            return;
        }
        self.size += data.len() as u64;
        if self.size > self.limit as u64 {
            // Never truncated: a body over the limit is not stored at all.
            self.captured = None;
        } else if let Some(captured) = &mut self.captured {
            captured.push(data.clone());
        }
        if self.declared.is_some_and(|declared| self.size >= declared) {
            self.last = Some(data);
        } else {
            self.send(data).await;
        }
    }

    async fn send(&mut self, data: Bytes) {
        let Some(caller) = &self.caller else { return };
        let bytes = data.len().min(self.queue_bytes);
        let space = Arc::clone(&self.queue_space);
        let space = space.acquire_many_owned(u32::try_from(bytes).unwrap_or(1));
        let sent = tokio::select! {
            () = caller.closed() => false,
            space = tokio::time::timeout(MAX_STALL, space) => match space {
                Ok(space) => caller.send(Piece::Frame(Frame::data(data), space.ok())).is_ok(),
                Err(_) => false,
            },
        };
        if !sent {
            self.caller = None;
        }
    }

    pub(crate) fn captured(&mut self) -> Captured {
        match self.captured.take() {
            Some(captured) => Captured::Whole(captured.into_bytes()),
            None => Captured::TooLarge(self.size),
        }
    }

    /// Whether there was anything in the body.
    pub(crate) const fn has_data(&self) -> bool {
        self.size > 0
    }

    pub(crate) const fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// Changes the trailers that the caller gets.
    pub(crate) fn change_trailers(&mut self, change: impl FnOnce(&mut HeaderMap)) {
        self.trailers.as_mut().map(change);
    }

    /// Ends the caller's body cleanly, after the outcome is stored. Without this it is aborted.
    pub(crate) fn finish(self) {
        let Some(caller) = self.caller else { return };
        let frames = self.last.map(Frame::data).into_iter();
        let frames = frames.chain(self.trailers.map(Frame::trailers));
        for piece in frames.map(|frame| Piece::Frame(frame, None)).chain([Piece::End]) {
            // Ignored: the caller may be gone.
            let _ = caller.send(piece);
        }
    }
}
