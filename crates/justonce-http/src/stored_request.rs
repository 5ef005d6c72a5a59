//! The encoding of a request that is stored with its claim, for a resend. Pure.
//!
//! A version byte, then method, target, headers and trailers, each string after its length, and
//! the body at the end.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, request};
use justonce_core::{Checkpoint, MAX_CHECKPOINT_BYTES};

use crate::body::WholeBody;
use crate::headers::{ATTEMPT, FENCE, RECORD};

/// The name of the checkpoint that is a stored request.
const CHECKPOINT: &str = "request";
const VERSION: u8 = 1;

/// The request is too large to be stored with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// A request that was read from a checkpoint.
#[derive(Debug)]
pub(crate) struct StoredRequest {
    pub(crate) parts: request::Parts,
    pub(crate) body: WholeBody,
}

/// Encodes a request without these headers.
pub(crate) fn encode(
    parts: &request::Parts,
    body: &WholeBody,
    without: &[HeaderName],
) -> Result<Checkpoint, TooLarge> {
    let data = body.data();
    let mut bytes = BytesMut::with_capacity(data.len() + 1024);
    bytes.put_u8(VERSION);
    put(&mut bytes, parts.method.as_str().as_bytes())?;
    put(&mut bytes, parts.uri.to_string().as_bytes())?;
    put_headers(&mut bytes, &parts.headers, without)?;
    put_headers(&mut bytes, body.trailers().unwrap_or(&HeaderMap::new()), without)?;
    bytes.put(data);
    if bytes.len() > MAX_CHECKPOINT_BYTES {
        return Err(TooLarge);
    }
    Checkpoint::new(CHECKPOINT, bytes.freeze()).map_err(|_| TooLarge)
}

fn put(bytes: &mut BytesMut, part: &[u8]) -> Result<(), TooLarge> {
    bytes.put_u32(u32::try_from(part.len()).map_err(|_| TooLarge)?);
    bytes.put_slice(part);
    Ok(())
}

fn put_headers(
    bytes: &mut BytesMut,
    headers: &HeaderMap,
    without: &[HeaderName],
) -> Result<(), TooLarge> {
    // The layer adds these to each attempt.
    let per_attempt = [ATTEMPT, FENCE, RECORD];
    let kept = |name| !without.contains(name) && !per_attempt.contains(name);
    let kept: Vec<_> = headers.iter().filter(|(name, _)| kept(name)).collect();
    bytes.put_u32(u32::try_from(kept.len()).map_err(|_| TooLarge)?);
    for (name, value) in kept {
        put(bytes, name.as_str().as_bytes())?;
        put(bytes, value.as_bytes())?;
    }
    Ok(())
}

impl StoredRequest {
    /// Decodes a checkpoint; the error is the reason why it cannot be decoded.
    pub(crate) fn decode(checkpoint: &Checkpoint) -> Result<Self, String> {
        if checkpoint.name() != CHECKPOINT {
            return Err(format!("its checkpoint is {:?}, not a request", checkpoint.name()));
        }
        let damaged = || "its stored request is damaged".to_owned();
        let mut bytes = checkpoint.data().clone();
        let version = bytes.try_get_u8().map_err(|_| damaged())?;
        if version != VERSION {
            return Err(format!("its request has version {version}, and {VERSION} is known"));
        }
        decode(&mut bytes).ok_or_else(damaged)
    }
}

fn decode(bytes: &mut Bytes) -> Option<StoredRequest> {
    let method = Method::from_bytes(&take(bytes)?).ok()?;
    let uri = Uri::from_maybe_shared(take(bytes)?).ok()?;
    let headers = take_headers(bytes)?;
    let trailers = Some(take_headers(bytes)?).filter(|trailers| !trailers.is_empty());
    let (mut parts, ()) = http::Request::new(()).into_parts();
    (parts.method, parts.uri, parts.headers) = (method, uri, headers);
    Some(StoredRequest { parts, body: WholeBody::new(bytes.clone(), trailers) })
}

fn take(bytes: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

fn take_headers(bytes: &mut Bytes) -> Option<HeaderMap> {
    let count = bytes.try_get_u32().ok()?;
    let mut headers = HeaderMap::new();
    for _ in 0..count {
        let name = HeaderName::from_bytes(&take(bytes)?).ok()?;
        let value = HeaderValue::from_maybe_shared(take(bytes)?).ok()?;
        headers.try_append(name, value).ok()?;
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> (request::Parts, WholeBody) {
        let request = http::Request::post("/payments?a=%20b")
            .header("authorization", "Bearer x")
            .header("accept", "a/b")
            .header("accept", "c/d")
            .header("x-bytes", HeaderValue::from_bytes(b"\xff\xfe").unwrap())
            .header("idempotency-fence", "7");
        let trailers = HeaderMap::from_iter([(
            HeaderName::from_static("x-sum"),
            HeaderValue::from_static("9"),
        )]);
        let body = WholeBody::new(Bytes::from_static(b"\0{}"), Some(trailers));
        (request.body(()).unwrap().into_parts().0, body)
    }

    #[test]
    fn a_request_is_read_back_as_it_was() {
        let (parts, body) = request();
        let read = StoredRequest::decode(&encode(&parts, &body, &[]).unwrap()).unwrap();
        assert_eq!((&read.parts.method, &read.parts.uri), (&parts.method, &parts.uri));
        let mut headers = parts.headers;
        headers.remove(FENCE);
        assert_eq!(read.parts.headers, headers);
        assert_eq!((read.body.data(), read.body.trailers()), (body.data(), body.trailers()));
    }

    #[test]
    fn what_is_to_be_left_out_is_not_there() {
        let (parts, body) = request();
        let checkpoint = encode(&parts, &body, &[http::header::AUTHORIZATION]).unwrap();
        assert!(!checkpoint.data().windows(6).any(|part| part == b"Bearer"));
        let read = StoredRequest::decode(&checkpoint).unwrap();
        assert!(!read.parts.headers.contains_key(http::header::AUTHORIZATION));
    }

    #[test]
    fn what_is_too_large_is_not_stored_and_never_cut() {
        let (parts, _) = request();
        let body = |size| WholeBody::from(Bytes::from(vec![b'x'; size]));
        assert!(encode(&parts, &body(MAX_CHECKPOINT_BYTES - 1000), &[]).is_ok());
        assert_eq!(encode(&parts, &body(MAX_CHECKPOINT_BYTES), &[]), Err(TooLarge));
    }

    #[test]
    fn whatever_is_cut_or_of_another_version_is_told() {
        let (parts, body) = request();
        let whole = encode(&parts, &body, &[]).unwrap().data().clone();
        let head = whole.len() - body.data().len();
        for length in 0..head {
            let cut = Checkpoint::new(CHECKPOINT, whole.slice(..length)).unwrap();
            assert!(StoredRequest::decode(&cut).is_err(), "{length}");
        }
        let mut newer = whole.to_vec();
        newer[0] = 2;
        let newer =
            StoredRequest::decode(&Checkpoint::new(CHECKPOINT, newer).unwrap()).unwrap_err();
        assert!(newer.contains("version 2"), "{newer}");
        assert!(StoredRequest::decode(&Checkpoint::new("other", whole).unwrap()).is_err());
    }
}
