//! Responses as outcomes, and outcomes as responses.

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, DATE, HOST, LOCATION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use justonce_core::{Body, Outcome};
use serde_json::json;

use crate::body::WholeBody;
use crate::headers::{
    KEEP_ALIVE, LIFETIME, OUTCOME, PROBLEM, PROXY_CONNECTION, REPLAYED, STATUS, named_by_connection,
};
use crate::problem::{Problem, ProblemCode};
use crate::rule::Rule;

/// Marks a stored header as a trailer: no header name begins with it.
const TRAILER_MARK: char = ':';
/// The longest `Location` that is stored without the other headers.
const MAX_LOCATION_BYTES: usize = 4096;

const COOKIE2: HeaderName = HeaderName::from_static("set-cookie2");
const AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("authentication-info");
const PROXY_AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("proxy-authentication-info");

/// Headers that say what the body is or how it is read: after the body it is too late for them, and
/// some receivers refuse them there.
const NOT_IN_TRAILERS: [HeaderName; 6] =
    [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, HOST, TRAILER];

fn may_be_trailer(name: &HeaderName) -> bool {
    !NOT_IN_TRAILERS.contains(name)
}

/// What was captured of a body.
pub(crate) enum Captured {
    Whole(Bytes),
    /// Over the limit: only the size.
    TooLarge(u64),
}

impl Captured {
    pub(crate) fn of(data: Bytes, limit: usize) -> Self {
        if data.len() > limit { Self::TooLarge(data.len() as u64) } else { Self::Whole(data) }
    }
}

/// Whether responses with this status have no body, whatever their headers say.
pub(crate) const fn is_bodiless(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Which headers of one response are forwarded, and which are stored.
pub(crate) struct Filter<'a> {
    rule: &'a Rule,
    named_by_connection: Vec<HeaderName>,
}

impl<'a> Filter<'a> {
    pub(crate) fn new(rule: &'a Rule, headers: &HeaderMap) -> Self {
        Self { rule, named_by_connection: named_by_connection(headers) }
    }

    /// Whether the caller of this request gets a header: hop-by-hop headers and ours are left out.
    /// `Trailer` is forwarded: without it HTTP/1.1 servers send no trailers.
    pub(crate) fn forwards(&self, name: &HeaderName) -> bool {
        const LEFT_OUT: [HeaderName; 11] = [
            CONNECTION,
            TRANSFER_ENCODING,
            UPGRADE,
            TE,
            KEEP_ALIVE,
            PROXY_CONNECTION,
            OUTCOME,
            REPLAYED,
            STATUS,
            LIFETIME,
            PROBLEM,
        ];
        !LEFT_OUT.contains(name) && !self.named_by_connection.contains(name)
    }

    /// Leaves out of trailers what would not be forwarded as a header.
    pub(crate) fn clean(&self, trailers: &mut HeaderMap) {
        let goes = |name: &&HeaderName| !self.forwards(name) || !may_be_trailer(name);
        let names: Vec<HeaderName> = trailers.keys().filter(goes).cloned().collect();
        for name in names {
            trailers.remove(name);
        }
    }

    /// Whether a header is stored for replays. Headers that authenticate or identify their
    /// receiver are not, unless the rule says so.
    pub(crate) fn stores(&self, name: &HeaderName) -> bool {
        const NOT_STORED: [HeaderName; 9] = [
            DATE,
            SET_COOKIE,
            COOKIE2,
            WWW_AUTHENTICATE,
            PROXY_AUTHENTICATE,
            AUTHENTICATION_INFO,
            PROXY_AUTHENTICATION_INFO,
            AUTHORIZATION,
            PROXY_AUTHORIZATION,
        ];
        let is_dropped = || NOT_STORED.contains(name) || self.rule.drop_headers.contains(name);
        self.forwards(name) && (self.rule.keep_headers.contains(name) || !is_dropped())
    }
}

/// The outcome that the layer would store for a response under a rule. It is for responses that
/// become known in another way, such as a probe: they are replayed like any other.
///
/// ```
/// use bytes::Bytes;
/// use http::Response;
/// use justonce_http::{Rule, outcome_of};
///
/// let response = Response::builder()
///     .status(201)
///     .header("content-type", "application/json")
///     .header("set-cookie", "session=1")
///     .body(Bytes::from_static(b"{\"id\":17}"))?;
/// let outcome = outcome_of(&response, &Rule::default());
/// assert_eq!(outcome.status(), Some(201));
/// // Cookies are not stored.
/// assert_eq!(outcome.headers().len(), 1);
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn outcome_of(response: &Response<Bytes>, rule: &Rule) -> Outcome {
    let filter = Filter::new(rule, response.headers());
    let captured = Captured::of(response.body().clone(), rule.max_stored_bytes);
    outcome(response.status(), response.headers(), &filter, &captured, None)
}

/// The outcome that is stored for a response.
pub(crate) fn outcome(
    status: StatusCode,
    headers: &HeaderMap,
    filter: &Filter<'_>,
    body: &Captured,
    trailers: Option<&HeaderMap>,
) -> Outcome {
    let stored_headers = || headers.iter().filter(|(name, _)| filter.stores(name));
    let trailers = || {
        let all = trailers.into_iter().flat_map(HeaderMap::iter);
        all.filter(|(name, _)| filter.stores(name) && may_be_trailer(name))
    };
    let mut builder = Outcome::builder()
        .status(status.as_u16())
        .reserve_headers(stored_headers().count() + trailers().count());
    for (name, value) in stored_headers() {
        builder = builder.header(name.as_str(), Bytes::copy_from_slice(value.as_bytes()));
    }
    for (name, value) in trailers() {
        let name = format!("{TRAILER_MARK}{name}");
        builder = builder.header(name, Bytes::copy_from_slice(value.as_bytes()));
    }
    let (size, builder) = match body {
        // Copied: the bytes are a slice of a connection's buffer, and a cached outcome would keep
        // the whole buffer in memory.
        Captured::Whole(bytes) => (bytes.len() as u64, builder.body(Bytes::copy_from_slice(bytes))),
        Captured::TooLarge(size) => (*size, builder.too_large(*size)),
    };
    builder.build().unwrap_or_else(|_| without_headers(status, headers, size))
}

/// With more headers than can be stored, the whole response is too large to be replayed.
fn without_headers(status: StatusCode, headers: &HeaderMap, size: u64) -> Outcome {
    let mut builder = Outcome::builder().status(status.as_u16()).too_large(size);
    let location = headers.get(LOCATION);
    if let Some(location) = location.filter(|value| value.len() < MAX_LOCATION_BYTES) {
        let location = Bytes::copy_from_slice(location.as_bytes());
        builder = builder.header(LOCATION.as_str(), location);
    }
    builder.build().unwrap_or_else(|_| Outcome::empty())
}

/// Response extension: it repeats an outcome. A header with that meaning may be the service's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replay;

/// The response that repeats an outcome, or the problem that it was too large to be stored. An
/// outcome that an operator gave without a status gets `without_status`.
pub(crate) fn replay(
    outcome: &Outcome,
    without_status: StatusCode,
) -> Result<Response<WholeBody>, Problem> {
    let status = outcome.status().and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.unwrap_or(without_status);
    let mut headers = HeaderMap::with_capacity(outcome.headers().len() + 3);
    let mut trailers = HeaderMap::new();
    for header in outcome.headers() {
        let Ok(value) = HeaderValue::from_maybe_shared(header.value.clone()) else { continue };
        let (map, name) = match header.name.strip_prefix(TRAILER_MARK) {
            Some(name) => (&mut trailers, name),
            None => (&mut headers, &*header.name),
        };
        if let Ok(name) = HeaderName::try_from(name) {
            map.append(name, value);
        }
    }
    // Earlier releases stored all of them.
    NOT_IN_TRAILERS.iter().for_each(|name| drop(trailers.remove(name)));
    let body = match outcome.stored_body() {
        Body::Whole(_) if is_bodiless(status) => Bytes::new(),
        Body::Whole(bytes) => bytes.clone(),
        Body::TooLarge(size) => return Err(too_large(status, *size, headers.remove(LOCATION))),
    };
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    if !is_bodiless(status) && headers.contains_key(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    let trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
    let mut response = Response::new(WholeBody::new(body, trailers));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response.extensions_mut().insert(Replay);
    Ok(response)
}

fn too_large(status: StatusCode, size: u64, location: Option<HeaderValue>) -> Problem {
    let detail = "The operation is done and is not executed again, but its response was too large \
                  to be kept. Fetch the result from where the service has it.";
    Problem::new(ProblemCode::OutcomeTooLarge, detail)
        .with("stored_status", json!(status.as_u16()))
        .with("stored_bytes", json!(size))
        .location(location)
}
