//! Answers as outcomes, and outcomes as answers.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, LOCATION};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use justonce_core::{Body, Outcome, OutcomeBuilder};
use serde_json::json;

use crate::body::WholeBody;
use crate::headers::{Filter, REPLAYED};
use crate::problem::{Problem, ProblemCode};
use crate::rule::Rule;

/// Marks a stored header as a trailer: no header's name can begin with it.
const TRAILER_MARK: char = ':';

/// What was captured of a body.
pub(crate) enum Captured {
    Whole(Bytes),
    /// Only its size: it was too large.
    TooLarge(u64),
}

/// Whether answers with this status have no body, whatever their headers say.
pub(crate) const fn bodiless(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// The outcome that would be stored for a whole answer under a rule, for those who know from
/// somewhere else how a service answered: it is replayed as if it had come by itself.
///
/// ```
/// use bytes::Bytes;
/// use http::Response;
/// use justonce_http::{Rule, outcome_of};
///
/// let answer = Response::builder()
///     .status(201)
///     .header("content-type", "application/json")
///     .header("set-cookie", "session=1")
///     .body(Bytes::from_static(b"{\"id\":17}"))?;
/// let outcome = outcome_of(&answer, &Rule::default());
/// assert_eq!(outcome.status(), Some(201));
/// // What is never stored of an answer is not stored of this one either.
/// assert_eq!(outcome.headers().len(), 1);
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn outcome_of(answer: &Response<Bytes>, rule: &Rule) -> Outcome {
    let mut head = Response::new(());
    *head.status_mut() = answer.status();
    head.headers_mut().clone_from(answer.headers());
    let (parts, ()) = head.into_parts();
    let filter = Filter::new(rule, answer.headers());
    let captured = if answer.body().len() > rule.max_stored_bytes {
        Captured::TooLarge(answer.body().len() as u64)
    } else {
        Captured::Whole(answer.body().clone())
    };
    outcome(&parts, &filter, &captured, None)
}

/// The outcome that is stored for an answer.
pub(crate) fn outcome(
    parts: &Parts,
    filter: &Filter<'_>,
    body: &Captured,
    trailers: Option<&HeaderMap>,
) -> Outcome {
    let headers = || parts.headers.iter().filter(|(name, _)| filter.stores(name));
    let trailers = || {
        let all = trailers.into_iter().flat_map(HeaderMap::iter);
        all.filter(|(name, _)| filter.stores(name))
    };
    let mut builder = Outcome::builder()
        .status(parts.status.as_u16())
        .room_for_headers(headers().count() + trailers().count());
    for (name, value) in headers() {
        builder = builder.header(name.as_str(), Bytes::copy_from_slice(value.as_bytes()));
    }
    for (name, value) in trailers() {
        let name = format!("{TRAILER_MARK}{name}");
        builder = builder.header(name, Bytes::copy_from_slice(value.as_bytes()));
    }
    let builder = with_body(builder, body);
    builder.build().unwrap_or_else(|_| without_headers(parts, body))
}

/// Headers beyond what can be stored make the whole answer too large to be replayed.
fn without_headers(parts: &Parts, body: &Captured) -> Outcome {
    let size = match body {
        Captured::Whole(bytes) => bytes.len() as u64,
        Captured::TooLarge(size) => *size,
    };
    let mut builder = Outcome::builder().status(parts.status.as_u16()).too_large(size);
    if let Some(location) = parts.headers.get(LOCATION).filter(|value| value.len() < 4096) {
        let location = Bytes::copy_from_slice(location.as_bytes());
        builder = builder.header(LOCATION.as_str(), location);
    }
    builder.build().unwrap_or_else(|_| Outcome::empty())
}

fn with_body(builder: OutcomeBuilder, body: &Captured) -> OutcomeBuilder {
    match body {
        // A copy of its own: what came from a connection is a piece of that connection's buffer,
        // and a cached outcome would keep all of it in memory.
        Captured::Whole(bytes) => builder.body(Bytes::copy_from_slice(bytes)),
        Captured::TooLarge(size) => builder.too_large(*size),
    }
}

/// The answer that repeats an outcome, or the problem that it cannot be repeated. An outcome that
/// somebody gave without a status gets this one.
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
    let body = match outcome.stored_body() {
        Body::Whole(_) if bodiless(status) => Bytes::new(),
        Body::Whole(bytes) => bytes.clone(),
        Body::TooLarge(size) => return Err(too_large(status, *size, headers.remove(LOCATION))),
    };
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    if !bodiless(status) && headers.contains_key(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    let trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
    let mut response = Response::new(WholeBody::new(body, trailers));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

fn too_large(status: StatusCode, size: u64, location: Option<HeaderValue>) -> Problem {
    let detail = "The operation is done and is not executed again, but its answer was too large \
                  to be kept. Fetch the result from where the service has it.";
    Problem::new(ProblemCode::OutcomeTooLarge, detail)
        .with("stored_status", json!(status.as_u16()))
        .with("stored_bytes", json!(size))
        .location(location)
}
