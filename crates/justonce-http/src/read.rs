//! Reading bodies, bounded.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;

use crate::body::{BoxError, WholeBody};

/// Why a request's body was not read.
#[derive(Debug)]
pub(crate) enum Unread {
    /// It is over the limit.
    TooLarge,
    /// It ended early or broke the rules.
    Incomplete(BoxError),
}

/// Gathers frames; one frame is kept without copying.
#[derive(Debug, Default)]
pub(crate) struct Gatherer {
    first: Bytes,
    rest: BytesMut,
}

impl Gatherer {
    pub(crate) fn push(&mut self, data: Bytes) {
        if self.rest.is_empty() && self.first.is_empty() {
            self.first = data;
            return;
        }
        if self.rest.is_empty() {
            self.rest.extend_from_slice(&self.first);
            self.first = Bytes::new();
        }
        self.rest.extend_from_slice(&data);
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { self.rest.freeze() }
    }
}

/// Reads a request's body whole.
pub(crate) async fn read_whole<B>(body: B, limit: usize) -> Result<WholeBody, Unread>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let hint = body.size_hint();
    if hint.lower() > limit as u64 {
        return Err(Unread::TooLarge);
    }
    if body.is_end_stream() {
        return Ok(WholeBody::default());
    }
    let mut body = std::pin::pin!(body);
    let mut gathered = Gatherer::default();
    let mut trailers: Option<HeaderMap> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Unread::Incomplete(error.into()))?;
        match frame.into_data() {
            Ok(data) => {
                if gathered.len() + data.len() > limit {
                    return Err(Unread::TooLarge);
                }
                gathered.push(data);
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    // A body that says how long it is and is shorter did not arrive whole.
    if hint.exact().is_some_and(|exact| exact != gathered.len() as u64) {
        return Err(Unread::Incomplete("it is shorter than announced".into()));
    }
    Ok(WholeBody::new(gathered.into_bytes(), trailers))
}
