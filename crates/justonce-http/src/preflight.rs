//! Preflights: browsers ask whether a page of another origin may send a request.

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, request};

use crate::cors::add_words;
use crate::key::KeySource;
use crate::routes::{Route, Routes};
use crate::rule::{Rule, ScopePart};
use crate::target::NormalPath;
use crate::well_known;

/// The answer to a preflight, if the layer gives it: the route of the request that the page wants
/// to send decides.
pub(crate) fn preflight(routes: &Routes, parts: &request::Parts) -> Option<Response<Bytes>> {
    if parts.method != Method::OPTIONS {
        return None;
    }
    let origin = parts.headers.get(ORIGIN)?;
    let asked = parts.headers.get(ACCESS_CONTROL_REQUEST_METHOD)?;
    let method = Method::from_bytes(asked.as_bytes()).ok()?;
    let route = route_of(routes, parts, &method)?;
    let cors = route.rule.cors.as_ref().filter(|cors| cors.answers_preflights())?;
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let varies = [ORIGIN, ACCESS_CONTROL_REQUEST_METHOD, ACCESS_CONTROL_REQUEST_HEADERS];
    add_words(headers, &VARY, &varies.each_ref().map(HeaderName::as_str));
    if cors.allowed(Some(origin)).is_some() {
        cors.allow(headers, Some(origin));
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, asked.clone());
        let names = names(&route.rule, cors.allowed_headers());
        add_words(headers, &ACCESS_CONTROL_ALLOW_HEADERS, &names);
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(cors.max_age_seconds()));
    }
    Some(response)
}

fn route_of<'r>(routes: &'r Routes, parts: &request::Parts, method: &Method) -> Option<&'r Route> {
    let route = if *method == Method::GET {
        well_known::route_of_state(routes, &parts.uri)
    } else {
        routes.find(method, &NormalPath::of(parts.uri.path())?)
    };
    route.map(|route| &**route).filter(|route| route.is_protected())
}

/// The headers that a page may send on a route: those that the route reads, and what requests with
/// a body have.
fn names<'r>(rule: &'r Rule, more: &'r [HeaderName]) -> Vec<&'r str> {
    let mut names = vec!["content-type", "prefer"];
    if let KeySource::Header(name) = &rule.key_source {
        names.push(name.as_str());
    }
    for part in &rule.scope {
        match part {
            ScopePart::Caller => names.extend(["authorization", "x-api-key"]),
            ScopePart::Principal(name) | ScopePart::Tenant(name) => names.push(name.as_str()),
            ScopePart::Claim(_) => names.push("authorization"),
            ScopePart::Cookie(_) | ScopePart::Address | ScopePart::Certificate => {}
        }
    }
    names.extend(more.iter().map(HeaderName::as_str));
    names.sort_unstable();
    names.dedup();
    names
}
