//! Reading bodies, bounded.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use http_body::Body;
use http_body_util::BodyExt;

use crate::body::{BoxError, WholeBody};
use crate::headers::remove_ours_behind;
use crate::room::Place;

/// How long a body may be that is read only to be thrown away.
const MAX_SWALLOWED_BYTES: usize = 64 * 1024;
/// How long that may take.
const MAX_SWALLOW: Duration = Duration::from_secs(1);

/// Why a request's body was not read.
#[derive(Debug)]
pub(crate) enum Unread {
    /// It is over the limit.
    TooLarge,
    /// There was no room for it among all the others.
    NoRoom,
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

/// How long a body says it is: by its headers, or by itself.
pub(crate) fn announced(headers: &HeaderMap, body: &impl Body) -> Option<u64> {
    let mut lines = headers.get_all(CONTENT_LENGTH).into_iter();
    let length = match (lines.next(), lines.next()) {
        (Some(line), None) if !headers.contains_key(TRANSFER_ENCODING) => {
            line.to_str().ok().and_then(|line| line.parse().ok())
        }
        _ => None,
    };
    length.or_else(|| body.size_hint().exact())
}

/// Reads a request's body whole, in its place.
pub(crate) async fn read_whole<B>(
    headers: &HeaderMap,
    body: B,
    limit: usize,
    place: &mut Place,
) -> Result<WholeBody, Unread>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let announced = announced(headers, &body);
    if announced.unwrap_or_else(|| body.size_hint().lower()) > limit as u64 {
        return Err(Unread::TooLarge);
    }
    let mut body = std::pin::pin!(body);
    let mut gathered = Gatherer::default();
    let mut trailers: Option<HeaderMap> = None;
    loop {
        // A frame is large: it is gone before the next wait.
        let before = gathered.len();
        match body.frame().await {
            None => break,
            Some(Err(error)) => return Err(Unread::Incomplete(error.into())),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if before + data.len() > limit => return Err(Unread::TooLarge),
                Ok(data) => gathered.push(data),
                Err(frame) => trailers = frame.into_trailers().ok().and_then(without_ours),
            },
        }
        if !place.grow(gathered.len() - before).await {
            return Err(Unread::NoRoom);
        }
    }
    // A body that says how long it is and is shorter did not arrive whole.
    if announced.is_some_and(|announced| announced != gathered.len() as u64) {
        return Err(Unread::Incomplete("it is not as long as announced".into()));
    }
    Ok(WholeBody::new(gathered.into_bytes(), trailers))
}

/// The trailers of a request, if any are the caller's to send.
fn without_ours(mut trailers: HeaderMap) -> Option<HeaderMap> {
    remove_ours_behind(&mut trailers);
    Some(trailers).filter(|trailers| !trailers.is_empty())
}

/// Reads a short body before its request is refused: an answer that comes while a client still
/// sends is lost on some, with HTTP/2 above all. A client that waits to be asked for its body has
/// not sent it, and is not asked.
pub(crate) async fn swallow<B: Body<Data = Bytes>>(headers: &HeaderMap, body: B) {
    let is_long = announced(headers, &body).is_some_and(|size| size > MAX_SWALLOWED_BYTES as u64);
    if is_long || body.is_end_stream() || headers.contains_key(EXPECT) {
        return;
    }
    let mut body = std::pin::pin!(body);
    let mut size = 0;
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            size += frame.data_ref().map_or(0, Bytes::len);
            if size > MAX_SWALLOWED_BYTES {
                break;
            }
        }
    };
    // However it ends, the request is refused.
    let _ = tokio::time::timeout(MAX_SWALLOW, reading).await;
}
