//! What becomes of a request, by its head alone. Pure but for what it notes about routes.
//!
//! What is forwarded is settled here, before anything is computed from it: scopes, fingerprints and
//! the service see the same request.

use std::sync::Arc;

use http::{Method, Uri, request};

use crate::headers::{remove_ours, remove_per_hop};
use crate::host::{self, TwoHosts};
use crate::path::NormalPath;
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Route, Routes, never_protected};
use crate::rule::PathEscapes;
use crate::well_known::Asked;

/// What becomes of a request.
pub(crate) enum Admitted {
    /// The layer answers itself.
    Ours(Asked),
    /// The service answers, and nothing is looked at.
    Passed,
    /// It falls under a route.
    Under(Arc<Route>),
    /// It is refused.
    Refused(Problem),
}

/// Decides about a request, and makes its head what the service gets.
pub(crate) fn admit(routes: &Routes, parts: &mut request::Parts) -> Admitted {
    remove_ours(&mut parts.headers);
    if parts.method == Method::CONNECT {
        return Admitted::Passed;
    }
    if is_like_a_protected(&parts.method) {
        return refused(OTHER_LETTERS);
    }
    let is_of_server = parts.method == Method::OPTIONS && parts.uri.path() == "*";
    if !parts.uri.path().starts_with('/') && !is_of_server {
        return refused(NO_SLASH);
    }
    if host::settle(parts) == Err(TwoHosts) {
        return refused(TWO_HOSTS);
    }
    if never_protected(&parts.method) {
        return Asked::of(parts).map_or(Admitted::Passed, Admitted::Ours);
    }
    // Whoever leaves HTTP does so with GET: here it would be a way around the protection.
    remove_per_hop(&mut parts.headers);
    let uri = parts.uri.clone();
    let Some(path) = NormalPath::of(uri.path()) else { return refused(NO_SLASH) };
    let route = routes.taken(&parts.method, &path);
    if path.is_ambiguous() {
        let rule = route.map(|route| &route.rule).or_else(|| routes.rest());
        if rule.is_none_or(|rule| rule.path_escapes == PathEscapes::Refuse) {
            return refused(AMBIGUOUS);
        }
    }
    if path.as_str() != uri.path() {
        match with_path(&uri, path.as_str()) {
            Some(uri) => parts.uri = uri,
            None => return refused(NO_SLASH),
        }
    }
    match route.filter(|route| route.is_protected()) {
        Some(route) => Admitted::Under(Arc::clone(route)),
        None => Admitted::Passed,
    }
}

/// Whether a method is one that can be protected, in other letters: to us it is another one, and to
/// services that do not mind it is the same.
fn is_like_a_protected(method: &Method) -> bool {
    const PROTECTED: [Method; 4] = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];
    !PROTECTED.contains(method)
        && PROTECTED.iter().any(|one| one.as_str().eq_ignore_ascii_case(method.as_str()))
}

/// The same target with another path.
fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let target = match uri.query() {
        None => path.to_owned(),
        Some(query) => format!("{path}?{query}"),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target.parse().ok()?);
    Uri::from_parts(parts).ok()
}

fn refused(detail: &str) -> Admitted {
    Admitted::Refused(Problem::new(ProblemCode::RequestInvalid, detail))
}

const OTHER_LETTERS: &str = "The method is not written in capitals, and services read that \
                             differently. Nothing was executed.";
const TWO_HOSTS: &str = "The request names two hosts. Nothing was executed. Say the same in `Host` \
                         and in the target, each once.";
const NO_SLASH: &str = "The target of the request is no path that begins with a slash. Nothing was \
                        executed.";
const AMBIGUOUS: &str = "The path has an escaped slash, a backslash or a zero byte, which services \
                         read differently. Nothing was executed.";
