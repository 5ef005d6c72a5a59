//! What the layer serves below `/.well-known/idempotency/`: the state of a key, and the problem
//! pages.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ORIGIN};
use http::{HeaderValue, Method, Response, StatusCode, Uri, request};
use justonce_core::{
    BusyWhy, Existing, Key, Operation, Record, StateName, StoreError, StoreResult,
};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::body::ResponseBody;
use crate::caller::{RequestHead, scope_problem};
use crate::fingerprint::{head_digest, matches_head};
use crate::headers::remove_per_hop;
use crate::identify::{identified, refused};
use crate::problem::{PAGES, Problem, ProblemCode};
use crate::routes::{Route, Routes};
use crate::shared::{Shared, not_executed};
use crate::target::NormalPath;

/// The prefix of the paths that the layer serves.
pub const PREFIX: &str = "/.well-known/idempotency/";

/// Whether the layer serves a request itself.
pub(crate) fn is_served(parts: &request::Parts) -> bool {
    let path = parts.uri.path();
    let is_ours = |rest: &str| path.starts_with(PAGES) || !rest.contains('/');
    parts.method == Method::GET && path.strip_prefix(PREFIX).is_some_and(is_ours)
}

/// The response to a request that the layer serves itself.
pub(crate) async fn respond<B>(
    shared: &Shared,
    parts: request::Parts,
) -> Response<ResponseBody<B>> {
    let response = match parts.uri.path().strip_prefix(PAGES) {
        Some(code) => page(code),
        None => {
            let mut response = match state(shared, &parts).await {
                Ok(value) => json_response(&value),
                Err(problem) => shared.logged_problem(problem, None),
            };
            if let Some(route) = route_of_state(&shared.routes, &parts.uri) {
                route.add_cors(&mut response, parts.headers.get(ORIGIN));
            }
            response
        }
    };
    response.map(ResponseBody::whole)
}

fn json_response(value: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(value.to_string()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn page(code: &str) -> Response<Bytes> {
    let Some(code) = ProblemCode::ALL.iter().find(|known| known.as_str() == code) else {
        let mut response = Response::new(Bytes::from_static(b"There is no such page.\n"));
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    let mut response = Response::new(Bytes::from_static(code.page().as_bytes()));
    let kind = HeaderValue::from_static("text/markdown; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// The route whose keys a question about a key is about, if the target is such a question.
pub(crate) fn route_of_state<'r>(routes: &'r Routes, uri: &Uri) -> Option<&'r Arc<Route>> {
    uri.path().strip_prefix(PREFIX)?;
    let path = parameter(uri, "path")?;
    let path = NormalPath::of(path.split('?').next().unwrap_or_default())?;
    routes.find(&method_of_state(uri)?, &path)
}

/// The method of the operation that a question is about.
fn method_of_state(uri: &Uri) -> Option<Method> {
    let method = parameter(uri, "method").unwrap_or("POST".into());
    Method::from_bytes(method.as_bytes()).ok()
}

fn parameter<'u>(uri: &'u Uri, wanted: &str) -> Option<Cow<'u, str>> {
    let mut all = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    all.find(|(name, _)| name == wanted).map(|(_, value)| value)
}

/// The state of a key. Nothing is executed and no body is revealed.
async fn state(shared: &Shared, parts: &request::Parts) -> Result<Value, Problem> {
    let key = parts.uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let key = percent_decode_str(key).decode_utf8_lossy();
    // The caller is identified by the headers that the operation's own request would have had.
    let mut headers = parts.headers.clone();
    remove_per_hop(&mut headers);
    let invalid = |detail: &str| Problem::new(ProblemCode::KeyInvalid, detail);
    let key = Key::client(&*key).map_err(|error| invalid(&format!("{error}.")))?;
    if parameter(&parts.uri, "path").is_none() {
        return Err(invalid("Say which path the key was sent to: add '?path=/payments/1'."));
    }
    let method = method_of_state(&parts.uri)
        .ok_or_else(|| invalid("The method of the query is not one of HTTP."))?;
    let route = route_of_state(&shared.routes, &parts.uri);
    let Some(route) = route.filter(|route| route.is_protected()) else {
        return Ok(json!({ "state": "absent" }));
    };
    let extensions = &parts.extensions;
    let claims = match route.rule.has_claims() {
        false => None,
        true => {
            let verified = identified(shared, &route.rule, &headers, extensions).await;
            Some(verified.map_err(|refusal| refused(route, refusal))?)
        }
    };
    let claims = claims.as_ref();
    let of = RequestHead { method: &method, headers: &headers, extensions, claims };
    let caller = route.caller(&of).map_err(|error| scope_problem(&error))?;
    let head = head_digest(&caller, &headers);
    let operation = Operation::without_fingerprint(caller.scope, key);
    let state = inspect(shared, &operation, &head).await;
    state.map_err(|error: StoreError| not_executed(&error.into()))
}

async fn inspect(shared: &Shared, operation: &Operation, head: &[u8; 32]) -> StoreResult<Value> {
    let stored = shared.engine.store().get(&operation.id()).await?;
    let record = stored.as_ref().and_then(|stored| stored.entry.record());
    if record.is_some_and(|record| !matches_head(&record.subject.fingerprint, head)) {
        // Of another host or a caller with other cookies: that there is one is not revealed.
        return Ok(json!({ "state": "absent" }));
    }
    let Some(existing) = shared.engine.peek(operation).await? else {
        // It could be claimed, but there may be a record of earlier attempts.
        let state = match record.map(Record::state_name) {
            Some(StateName::InProgress) => "in_progress",
            Some(StateName::Failed) => "failed",
            Some(StateName::Released) => "released",
            _ => "absent",
        };
        return Ok(json!({ "state": state }));
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
        // Unreachable: the operation has no fingerprint.
        Existing::Mismatch => json!({ "state": "in_progress" }),
    })
}
