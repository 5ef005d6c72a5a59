//! What counts as the same request: scopes and fingerprints.

use std::hash::BuildHasherDefault;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use justonce_core::store::IdHasher;
use justonce_core::{Canonical, Fingerprint, FingerprintKey, Key, Scope, ScopeError};
use percent_encoding::percent_decode;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::problem::{Problem, ProblemCode};
use crate::rule::{BodyMode, Places, Rule, ScopePart};

/// How many namespaces a route remembers.
const REMEMBERED_SCOPES: usize = 1024;
/// What most callers show, with some room.
const SHOWN_BYTES: usize = 256;

/// The namespaces of a route's callers. Making one takes longer than everything else that is done
/// for a duplicate, and most callers come again.
#[derive(Debug)]
pub(crate) struct Scopes(Cache<[u8; 32], Caller, UnitWeighter, BuildHasherDefault<IdHasher>>);

/// Whose a request is.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) scope: Scope,
    fingerprints: FingerprintKey,
}

impl Default for Scopes {
    fn default() -> Self {
        let (hasher, lifecycle) = (BuildHasherDefault::default(), DefaultLifecycle::default());
        let weight = REMEMBERED_SCOPES as u64;
        Self(Cache::with(REMEMBERED_SCOPES, weight, UnitWeighter, hasher, lifecycle))
    }
}

impl Scopes {
    /// The namespace of a request's key. Callers are remembered by a hash, never by what they
    /// showed.
    pub(crate) fn of(
        &self,
        rule: &Rule,
        route: &str,
        method: &http::Method,
        headers: &HeaderMap,
    ) -> Result<Caller, ScopeError> {
        let mut shown = Vec::with_capacity(SHOWN_BYTES);
        let mut add = |bytes: &[u8]| {
            shown.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            shown.extend_from_slice(bytes);
        };
        add(method.as_str().as_bytes());
        for (number, part) in rule.scope.iter().enumerate() {
            for line in headers.get_all(part.header()) {
                add(&number.to_le_bytes());
                add(line.as_bytes());
            }
        }
        let hash = *blake3::hash(&shown).as_bytes();
        if let Some(caller) = self.0.get(&hash) {
            return Ok(caller);
        }
        let scope = scope(rule, route, method, headers)?;
        let caller = Caller { fingerprints: FingerprintKey::of(&scope), scope };
        self.0.insert(hash, caller.clone());
        Ok(caller)
    }
}

/// The namespace of a request's key: route, method and whose it is.
fn scope(
    rule: &Rule,
    route: &str,
    method: &http::Method,
    headers: &HeaderMap,
) -> Result<Scope, ScopeError> {
    let mut builder = Scope::builder().route(route).part("method", method.as_str());
    for (number, part) in rule.scope.iter().enumerate() {
        // A part that is missing differs from one that is empty, so strangers share no scope with
        // anybody.
        let Some(value) = values(headers, part.header()) else { continue };
        builder = match part {
            ScopePart::Principal(_) => builder.secret(format!("principal_{number}"), &value),
            ScopePart::Tenant(_) => builder.tenant(value),
        };
    }
    builder.build()
}

/// The problem of a caller whose scope cannot be told.
pub(crate) fn scopeless(error: &ScopeError) -> Problem {
    tracing::info!(target: "justonce::request", %error, "the caller's scope cannot be told");
    let detail = "It cannot be told whose the key is: a header that says so is too long.";
    Problem::new(ProblemCode::KeyInvalid, detail)
}

/// All values of a header as one text, none of which can pose as another.
fn values(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let lines = headers.get_all(name).into_iter().map(|line| match line.to_str() {
        Ok(text) => text.to_owned(),
        Err(_) => format!("\0{}", data_encoding::HEXLOWER.encode(line.as_bytes())),
    });
    // A line break cannot be in a value.
    lines.reduce(|all, line| format!("{all}\n{line}"))
}

/// A body in the form in which it is compared.
pub(crate) fn canonical<'a>(mode: &BodyMode, body: &'a Bytes) -> Canonical<'a> {
    match mode {
        BodyMode::Raw => Canonical::Raw(body),
        BodyMode::Ignored => Canonical::Raw(b""),
        BodyMode::Json(Places::All) => Canonical::of(body),
        BodyMode::Json(Places::Without(places)) => Canonical::of(body).without(places),
        BodyMode::Json(Places::Only(places)) => Canonical::of(body).only(places),
        BodyMode::Form => form(body).map_or(Canonical::Raw(body), Canonical::Json),
    }
}

/// A form as a JSON list of its fields, sorted by name; repeats stay in their order. Nothing if it
/// is no form: a wrong escape has no meaning that all agree on.
fn form(body: &[u8]) -> Option<String> {
    let mut fields = Vec::new();
    for field in body.split(|byte| *byte == b'&').filter(|field| !field.is_empty()) {
        let mut halves = field.splitn(2, |byte| *byte == b'=');
        let name = decoded(halves.next()?)?;
        let value = halves.next().map(decoded);
        fields.push((name, value.map_or(Some(String::new()), |value| value)?));
    }
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    serde_json::to_string(&fields).ok()
}

fn decoded(text: &[u8]) -> Option<String> {
    let spaced: Vec<u8> =
        text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    let mut escapes = text.split(|byte| *byte == b'%').skip(1);
    let valid = escapes
        .all(|rest| rest.get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)));
    if !valid {
        return None;
    }
    percent_decode(&spaced).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

/// The digest of what is asked.
pub(crate) fn fingerprint(
    rule: &Rule,
    caller: &Caller,
    parts: &Parts,
    body: &Canonical<'_>,
) -> Fingerprint {
    let asked = &rule.fingerprint;
    let mut builder = caller.fingerprints.builder();
    let mut add = |name: &str, value: &[u8]| builder.add(name, &Canonical::Raw(value));
    add("method", parts.method.as_str().as_bytes());
    add("path", parts.uri.path().as_bytes());
    if asked.query
        && let Some(query) = parts.uri.query()
    {
        add("query", query.as_bytes());
    }
    for name in &asked.headers {
        for line in parts.headers.get_all(name) {
            add(name.as_str(), line.as_bytes());
        }
    }
    builder.add("body", body);
    builder.finish()
}

/// The key of a request whose content is its key: requests with the same fingerprint are one
/// operation, and others never mismatch.
pub(crate) fn content_key(fingerprint: &Fingerprint) -> Key {
    Key::content(&data_encoding::HEXLOWER.encode(fingerprint.digest()), b"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_compared_by_their_fields() {
        assert_eq!(form(b"b=2&a=1"), form(b"a=1&b=2"));
        assert_eq!(form(b"a=%41+x"), form(b"a=A%20x"));
        assert_ne!(form(b"a=1&a=2"), form(b"a=2&a=1"));
        assert_ne!(form(b"a=1"), form(b"a=1&b="));
        assert_eq!(form(b"a"), form(b"a="));
        for wrong in [&b"a=%4"[..], b"a=%zz", b"a=%ff"] {
            assert_eq!(form(wrong), None);
        }
    }
}
