//! The fingerprint of a request: what makes two requests the same.

use std::ops::Range;

use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use justonce_core::{Canonical, Fingerprint, Key};
use percent_encoding::percent_decode;

use crate::caller::{Caller, lines};
use crate::rule::{BodyMode, JsonFields, Rule};
use crate::target::compared_path;

/// A fingerprint has three parts: the content of the request, its host, and the cookies that
/// identify its caller. The store compares the whole; which part differs is looked up afterwards.
const CONTENT: Range<usize> = 0..16;
const HOST: Range<usize> = 16..24;
const COOKIES: Range<usize> = 24..32;

/// The fingerprint of a request. Each part is a hash that is keyed by the scope.
pub(crate) fn fingerprint(
    rule: &Rule,
    caller: &Caller,
    parts: &Parts,
    body: &Canonical<'_>,
) -> Fingerprint {
    let mut digest = head_digest(caller, &parts.headers);
    put(&mut digest, CONTENT, content(rule, caller, parts, body).digest());
    Fingerprint::from_parts(Fingerprint::REQUEST, digest)
}

/// The parts of a fingerprint that the headers alone determine.
pub(crate) fn head_digest(caller: &Caller, headers: &HeaderMap) -> [u8; 32] {
    let mut digest = [0; 32];
    put(&mut digest, HOST, caller.host());
    if let Some(cookies) = caller.cookies(headers) {
        put(&mut digest, COOKIES, &cookies);
    }
    digest
}

fn put(digest: &mut [u8; 32], range: Range<usize>, hash: &[u8; 32]) {
    if let Some(part) = digest.get_mut(range) {
        part.iter_mut().zip(hash).for_each(|(byte, new)| *byte = *new);
    }
}

fn content(rule: &Rule, caller: &Caller, parts: &Parts, body: &Canonical<'_>) -> Fingerprint {
    let mut builder = caller.fingerprints.builder();
    let mut add = |name: &str, value: &[u8]| builder.add(name, &Canonical::Raw(value));
    add("method", parts.method.as_str().as_bytes());
    add("path", compared_path(parts.uri.path()).as_bytes());
    if rule.fingerprint.query
        && let Some(query) = parts.uri.query()
    {
        add("query", query.as_bytes());
    }
    for name in &rule.fingerprint.headers {
        for line in lines(&parts.headers, name) {
            add(name.as_str(), &line);
        }
    }
    builder.add("body", body);
    builder.finish()
}

/// Whether a fingerprint identifies its caller by cookies.
pub(crate) fn has_cookies(fingerprint: &Fingerprint) -> bool {
    part(fingerprint, COOKIES).is_some_and(|part| part.iter().any(|byte| *byte != 0))
}

/// Whether two fingerprints were made with the same cookies, or both without.
pub(crate) fn same_cookies(one: &Fingerprint, other: &Fingerprint) -> bool {
    part(one, COOKIES) == part(other, COOKIES)
}

/// Whether a stored fingerprint has this host and these cookies. Those of other releases do not
/// tell.
pub(crate) fn matches_head(stored: &Fingerprint, head: &[u8; 32]) -> bool {
    let head = Fingerprint::from_parts(Fingerprint::REQUEST, *head);
    stored.version() != Fingerprint::REQUEST
        || (same_cookies(stored, &head) && part(stored, HOST) == part(&head, HOST))
}

fn part(fingerprint: &Fingerprint, range: Range<usize>) -> Option<&[u8]> {
    let is_ours = fingerprint.version() == Fingerprint::REQUEST;
    fingerprint.digest().get(range).filter(|_| is_ours)
}

/// The key of a request whose content is its key: requests with the same content and host are one
/// operation. Cookies do not count.
pub(crate) fn content_key(fingerprint: &Fingerprint) -> Key {
    let content = fingerprint.digest().get(..COOKIES.start).unwrap_or_default();
    Key::content(&data_encoding::HEXLOWER.encode(content), b"")
}

/// A body in the form in which it is compared.
pub(crate) fn canonical<'a>(mode: &BodyMode, body: &'a Bytes) -> Canonical<'a> {
    match mode {
        BodyMode::Raw => Canonical::Raw(body),
        BodyMode::Ignored => Canonical::Raw(b""),
        BodyMode::Json(JsonFields::All) => Canonical::of(body),
        BodyMode::Json(JsonFields::Without(fields)) => Canonical::of(body).without(fields),
        BodyMode::Json(JsonFields::Only(fields)) => Canonical::of(body).only(fields),
        BodyMode::Form => form(body).map_or(Canonical::Raw(body), Canonical::Json),
    }
}

/// A form as a JSON list of its fields, sorted by name; fields with the same name keep their order.
/// `None` if an escape is invalid: parsers disagree about those.
fn form(body: &[u8]) -> Option<String> {
    let fields = body.split(|byte| *byte == b'&').filter(|field| !field.is_empty());
    let decoded = fields.map(|field| {
        let mut halves = field.splitn(2, |byte| *byte == b'=');
        Some((form_decoded(halves.next()?)?, form_decoded(halves.next().unwrap_or_default())?))
    });
    let mut fields = decoded.collect::<Option<Vec<_>>>()?;
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    serde_json::to_string(&fields).ok()
}

fn form_decoded(text: &[u8]) -> Option<String> {
    let mut escapes = text.split(|byte| *byte == b'%').skip(1);
    let valid = escapes
        .all(|rest| rest.get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)));
    let spaced: Vec<u8> =
        text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    let decoded = percent_decode(&spaced).decode_utf8().ok()?;
    valid.then(|| decoded.into_owned())
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
