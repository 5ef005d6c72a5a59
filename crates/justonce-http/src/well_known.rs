//! What the layer answers itself, below `/.well-known/idempotency/`: what became of a key, and the
//! pages of the problems.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, request};
use justonce_core::{BusyWhy, Entry, Existing, Key, Operation, StateName, StoreError, StoreResult};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::body::ResponseBody;
use crate::caller::scopeless;
use crate::headers::remove_per_hop;
use crate::path::NormalPath;
use crate::problem::{PAGES, Problem, ProblemCode};
use crate::same;
use crate::shared::Shared;

/// What the paths of questions to the layer begin with.
pub const PREFIX: &str = "/.well-known/idempotency/";

/// What is asked of the layer itself.
pub(crate) enum Asked {
    /// The page of a problem.
    Page(ProblemCode),
    /// What became of a key.
    State(Box<StateQuery>),
    /// Something below our path that does not exist.
    Nothing,
}

/// Asks what became of a key.
pub(crate) struct StateQuery {
    key: String,
    path: Option<String>,
    method: Option<String>,
    headers: HeaderMap,
}

impl Asked {
    /// What a request asks of the layer itself, if it does.
    pub(crate) fn of(parts: &request::Parts) -> Option<Self> {
        if !parts.uri.path().starts_with(PREFIX) || parts.method != Method::GET {
            return None;
        }
        if let Some(code) = parts.uri.path().strip_prefix(PAGES) {
            let found = ProblemCode::ALL.iter().find(|known| known.as_str() == code);
            return Some(found.map_or(Self::Nothing, |code| Self::Page(*code)));
        }
        let key = parts.uri.path().strip_prefix(PREFIX).filter(|key| !key.contains('/'))?;
        let query = parts.uri.query().unwrap_or_default().as_bytes();
        let parameter = |wanted: &str| {
            let mut all = form_urlencoded::parse(query);
            all.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
        };
        // A question tells callers apart by what the operation's own request would have shown.
        let mut headers = parts.headers.clone();
        remove_per_hop(&mut headers);
        Some(Self::State(Box::new(StateQuery {
            key: percent_decode_str(key).decode_utf8_lossy().into_owned(),
            path: parameter("path"),
            method: parameter("method"),
            headers,
        })))
    }
}

pub(crate) async fn answer<B>(shared: &Shared, asked: Asked) -> Response<ResponseBody<B>> {
    let response = match asked {
        Asked::Page(code) => page(code),
        Asked::State(query) => match state(shared, &query).await {
            Ok(value) => {
                let mut response = Response::new(Bytes::from(value.to_string()));
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
                response
            }
            Err(problem) => shared.described(problem, None),
        },
        Asked::Nothing => {
            let mut response = Response::new(Bytes::from_static(b"There is no such page.\n"));
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    };
    response.map(ResponseBody::whole)
}

fn page(code: ProblemCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(code.page().as_bytes()));
    let kind = HeaderValue::from_static("text/markdown; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// What became of a key, without executing anything or showing any body.
async fn state(shared: &Shared, query: &StateQuery) -> Result<Value, Problem> {
    let invalid = |detail: &str| Problem::new(ProblemCode::KeyInvalid, detail);
    let key = Key::client(&query.key).map_err(|error| invalid(&format!("{error}.")))?;
    let path = query
        .path
        .as_deref()
        .ok_or_else(|| invalid("Say which path the key was sent to: add '?path=/payments/1'."))?;
    let method = query.method.as_deref().unwrap_or("POST");
    let method = Method::from_bytes(method.as_bytes())
        .map_err(|_| invalid("The method of the query is not one of HTTP."))?;
    let route_path = path.split('?').next().unwrap_or(path);
    let route = NormalPath::of(route_path).and_then(|path| shared.routes.of(&method, &path));
    let Some(route) = route.filter(|route| route.is_protected()) else {
        return Ok(json!({ "state": "absent" }));
    };
    let caller = route.caller(&method, &query.headers).map_err(|error| scopeless(&error))?;
    let head = same::of_head(&caller, &query.headers);
    let operation = Operation::without_fingerprint(caller.scope, key);
    let asked = async {
        if is_of_another(shared, &operation, &head).await? {
            return Ok(json!({ "state": "absent" }));
        }
        look(shared, &operation).await
    };
    asked.await.map_err(|error: StoreError| shared.not_executed(&error.into()))
}

/// Whether a record is that of a caller with other cookies, or of another host: whoever asks shall
/// not learn that there is one.
async fn is_of_another(
    shared: &Shared,
    operation: &Operation,
    head: &[u8; 32],
) -> StoreResult<bool> {
    let stored = shared.engine.store().get(&operation.id()).await?;
    let record = stored.as_ref().and_then(|stored| stored.entry.record());
    Ok(record.is_some_and(|record| !same::is_of(&record.subject.fingerprint, head)))
}

async fn look(shared: &Shared, operation: &Operation) -> StoreResult<Value> {
    let Some(existing) = shared.engine.peek(operation).await? else {
        return Ok(json!({ "state": claimable(shared, operation).await? }));
    };
    Ok(match existing {
        Existing::Completed(held) => {
            json!({ "state": "completed", "status": held.outcome.status() })
        }
        Existing::Failed(held) => json!({ "state": "failed", "status": held.outcome.status() }),
        Existing::Busy(busy) => {
            let state = match busy.why {
                BusyWhy::Running => "in_progress",
                BusyWhy::BackOff => "failed",
            };
            json!({ "state": state, "retry_after": busy.left.as_secs().saturating_add(1) })
        }
        Existing::Unknown(unknown) => {
            json!({ "state": "unknown", "since": unknown.since.as_millis() })
        }
        Existing::Expired(since) => json!({ "state": "expired", "since": since.as_millis() }),
        // A query has no fingerprint, so nothing can mismatch.
        Existing::Mismatch => json!({ "state": "in_progress" }),
    })
}

/// The state of an operation that a begin could claim: there may be a record of earlier attempts.
async fn claimable(shared: &Shared, operation: &Operation) -> StoreResult<&'static str> {
    let stored = shared.engine.store().get(&operation.id()).await?;
    Ok(match stored.map(|stored| stored.entry) {
        Some(Entry::Record(record)) => match record.state_name() {
            StateName::InProgress => "in_progress",
            StateName::Failed => "failed",
            StateName::Released => "released",
            _ => "absent",
        },
        Some(Entry::Tombstone(_)) | None => "absent",
    })
}
