//! A request as it is stored with the claim, so that it can be sent again without its caller. Pure.
//!
//! The form is versioned: a byte for the version, then texts and values each behind its length,
//! and the body at the end.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, request};
use justonce_core::{Checkpoint, MAX_CHECKPOINT_BYTES};

use crate::body::WholeBody;
use crate::headers::{ATTEMPT, FENCE, RECORD};

/// The name of the recovery point that is a stored request.
pub(crate) const POINT: &str = "request";
/// The version in which requests are written.
const VERSION: u8 = 1;

/// A request is larger than what can be stored with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// A request that was stored.
#[derive(Debug)]
pub(crate) struct StoredRequest {
    pub(crate) parts: request::Parts,
    pub(crate) body: WholeBody,
}

/// The recovery point of a request, without these headers.
pub(crate) fn point(
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
    Checkpoint::new(POINT, bytes.freeze()).map_err(|_| TooLarge)
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
    // Those that tell of one attempt are made anew for each.
    let kept =
        |name: &HeaderName| !without.contains(name) && ![ATTEMPT, FENCE, RECORD].contains(name);
    let kept: Vec<_> = headers.iter().filter(|(name, _)| kept(name)).collect();
    bytes.put_u32(u32::try_from(kept.len()).map_err(|_| TooLarge)?);
    for (name, value) in kept {
        put(bytes, name.as_str().as_bytes())?;
        put(bytes, value.as_bytes())?;
    }
    Ok(())
}

impl StoredRequest {
    /// Reads a recovery point.
    pub(crate) fn read(point: &Checkpoint) -> Result<Self, String> {
        if point.name() != POINT {
            return Err(format!("its recovery point is {:?}, not a request", point.name()));
        }
        let mut bytes = point.data().clone();
        let version = bytes.try_get_u8().map_err(|_| damaged())?;
        if version != VERSION {
            return Err(format!("its request has version {version}, and {VERSION} is known"));
        }
        read(&mut bytes).ok_or_else(damaged)
    }
}

fn damaged() -> String {
    "its stored request is damaged".to_owned()
}

fn read(bytes: &mut Bytes) -> Option<StoredRequest> {
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
        let read = StoredRequest::read(&point(&parts, &body, &[]).unwrap()).unwrap();
        assert_eq!((&read.parts.method, &read.parts.uri), (&parts.method, &parts.uri));
        let mut headers = parts.headers;
        headers.remove(FENCE);
        assert_eq!(read.parts.headers, headers);
        assert_eq!((read.body.data(), read.body.trailers()), (body.data(), body.trailers()));
    }

    #[test]
    fn what_is_to_be_left_out_is_not_there() {
        let (parts, body) = request();
        let point = point(&parts, &body, &[http::header::AUTHORIZATION]).unwrap();
        assert!(!point.data().windows(6).any(|part| part == b"Bearer"));
        let read = StoredRequest::read(&point).unwrap();
        assert!(!read.parts.headers.contains_key(http::header::AUTHORIZATION));
    }

    #[test]
    fn what_is_too_large_is_not_stored_and_never_cut() {
        let (parts, _) = request();
        let body = |size| WholeBody::from(Bytes::from(vec![b'x'; size]));
        assert!(point(&parts, &body(MAX_CHECKPOINT_BYTES - 1000), &[]).is_ok());
        assert_eq!(point(&parts, &body(MAX_CHECKPOINT_BYTES), &[]), Err(TooLarge));
    }

    #[test]
    fn whatever_is_cut_or_of_another_version_is_told() {
        let (parts, body) = request();
        let whole = point(&parts, &body, &[]).unwrap().data().clone();
        let head = whole.len() - body.data().len();
        for length in 0..head {
            let cut = Checkpoint::new(POINT, whole.slice(..length)).unwrap();
            assert!(StoredRequest::read(&cut).is_err(), "{length}");
        }
        let mut newer = whole.to_vec();
        newer[0] = 2;
        let newer = StoredRequest::read(&Checkpoint::new(POINT, newer).unwrap()).unwrap_err();
        assert!(newer.contains("version 2"), "{newer}");
        assert!(StoredRequest::read(&Checkpoint::new("other", whole).unwrap()).is_err());
    }
}
