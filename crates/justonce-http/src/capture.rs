//! Capturing an answer while it goes to its caller.

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
use crate::read::Gatherer;
use crate::stored::Captured;

/// Answers up to this many bytes are held back until their outcome is stored, if they come at once
/// or say how long they are: then the caller can still be told if something went wrong.
const HELD_BACK_BYTES: usize = 64 * 1024;
/// How many bytes wait for a slow caller before the service has to wait too. Not less than what is
/// stored: a caller that does not read must not keep an outcome from being stored.
const MIN_QUEUED_BYTES: usize = 1024 * 1024;
/// How long a caller may read nothing while the service waits, before it is left behind.
const MAX_STALL: Duration = Duration::from_secs(30);

/// The first part of an answer's body.
pub(crate) enum Start<B> {
    /// It is over.
    Whole(WholeBody),
    /// It goes on.
    Open(Opening<B>),
    /// It broke off.
    Broken,
}

/// What has come of a body that goes on, and the rest of it.
pub(crate) struct Opening<B> {
    frames: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    rest: Pin<Box<B>>,
}

/// Reads a body that comes at once, or the beginning of one that does not.
pub(crate) async fn start<B>(body: B, announced: Option<u64>) -> Start<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let is_short = announced.is_some_and(|size| size <= HELD_BACK_BYTES as u64);
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
        None => Start::Broken,
        Some(false) => Start::Open(Opening { frames, trailers, rest: body }),
        Some(true) if announced.is_some_and(|length| length != size as u64) => Start::Broken,
        Some(true) => {
            let mut all = Gatherer::default();
            frames.into_iter().for_each(|frame| all.push(frame));
            Start::Whole(WholeBody::new(all.into_bytes(), trailers))
        }
    }
}

/// Sends a body on while it captures it.
pub(crate) struct Pump {
    caller: Option<UnboundedSender<Piece>>,
    room: Arc<Semaphore>,
    room_bytes: usize,
    captured: Option<Gatherer>,
    limit: usize,
    size: u64,
    /// How long the body says it is.
    announced: Option<u64>,
    /// The frame that completes an announced length: the caller gets it once the outcome is stored.
    last: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Pump {
    /// A pump that captures at most `limit` bytes, and the body for the caller.
    pub(crate) fn new(limit: usize, announced: Option<u64>) -> (Self, StreamedBody) {
        let (caller, pieces) = mpsc::unbounded_channel();
        let room_bytes = limit.max(MIN_QUEUED_BYTES);
        let pump = Self {
            caller: Some(caller),
            room: Arc::new(Semaphore::new(room_bytes)),
            room_bytes,
            captured: Some(Gatherer::default()),
            limit,
            size: 0,
            announced,
            last: None,
            trailers: None,
        };
        (pump, StreamedBody { pieces, ended: false })
    }

    /// Sends everything on, to the clean end or not.
    pub(crate) async fn run<B>(&mut self, opening: Opening<B>) -> bool
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let Opening { frames, trailers, rest: mut body } = opening;
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
        self.announced.is_none_or(|announced| announced == self.size)
    }

    async fn data(&mut self, data: Bytes) {
        if data.is_empty() {
            // It must not push out the frame that is held back.
            return;
        }
        self.size += data.len() as u64;
        self.capture(&data);
        if self.announced.is_some_and(|announced| self.size >= announced) {
            self.last = Some(data);
        } else {
            self.send(data).await;
        }
    }

    fn capture(&mut self, data: &Bytes) {
        if self.size > self.limit as u64 {
            // Never truncated: a body that is too large is not stored at all.
            self.captured = None;
        } else if let Some(captured) = &mut self.captured {
            captured.push(data.clone());
        }
    }

    async fn send(&mut self, data: Bytes) {
        let Some(caller) = &self.caller else { return };
        let bytes = data.len().min(self.room_bytes);
        let room = Arc::clone(&self.room).acquire_many_owned(u32::try_from(bytes).unwrap_or(1));
        let sent = tokio::select! {
            () = caller.closed() => false,
            room = tokio::time::timeout(MAX_STALL, room) => match room {
                Ok(room) => caller.send(Piece::Frame(Frame::data(data), room.ok())).is_ok(),
                Err(_) => false,
            },
        };
        if !sent {
            self.caller = None;
        }
    }

    /// What was captured.
    pub(crate) fn captured(&mut self) -> Captured {
        match self.captured.take() {
            Some(captured) => Captured::Whole(captured.into_bytes()),
            None => Captured::TooLarge(self.size),
        }
    }

    pub(crate) const fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// Ends the body for the caller, after the outcome is stored. Without this it is broken off.
    pub(crate) fn finish(self) {
        let Some(caller) = self.caller else { return };
        let frames = self.last.map(Frame::data).into_iter();
        let frames = frames.chain(self.trailers.map(Frame::trailers));
        for piece in frames.map(|frame| Piece::Frame(frame, None)).chain([Piece::End]) {
            // A caller that has left needs nothing more.
            let _ = caller.send(piece);
        }
    }
}
