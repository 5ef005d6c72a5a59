//! What counts as the same request: fingerprints.

use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use justonce_core::{Canonical, Fingerprint, FingerprintKey, Key};
use percent_encoding::percent_decode;

use crate::caller::{Caller, lines};
use crate::rule::{BodyMode, Places, Rule};
use crate::{cookies, host, path};

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

/// The bytes of a fingerprint that say what is asked, where, and by whom. The store compares all
/// of them at once; which of them differ is looked up only when some do.
const ASKED: std::ops::Range<usize> = 0..16;
const PLACE: std::ops::Range<usize> = 16..24;
const CALLER: std::ops::Range<usize> = 24..32;

/// The digest of what is asked: in three parts, each a hash that is keyed by the scope.
pub(crate) fn fingerprint(
    rule: &Rule,
    caller: &Caller,
    parts: &Parts,
    body: &Canonical<'_>,
) -> Fingerprint {
    let mut digest = of_head(caller, &parts.headers);
    put(&mut digest, ASKED, asked(rule, caller, parts, body).digest());
    Fingerprint::from_parts(Fingerprint::REQUEST, digest)
}

/// What a fingerprint says beside what is asked: where, and by whom.
pub(crate) fn of_head(caller: &Caller, headers: &HeaderMap) -> [u8; 32] {
    let key = &caller.fingerprints;
    let mut digest = [0; 32];
    put(&mut digest, PLACE, &digest_of(key, "host", host::compared(headers).as_deref()));
    if caller.is_nameless {
        put(&mut digest, CALLER, &digest_of(key, "cookies", cookies::whole(headers).as_deref()));
    }
    digest
}

fn put(digest: &mut [u8; 32], place: std::ops::Range<usize>, hash: &[u8; 32]) {
    if let Some(part) = digest.get_mut(place) {
        part.iter_mut().zip(hash).for_each(|(byte, new)| *byte = *new);
    }
}

/// What is missing differs from what is empty.
fn digest_of(key: &FingerprintKey, name: &str, value: Option<&[u8]>) -> [u8; 32] {
    let mut builder = key.builder();
    match value {
        Some(value) => builder.add(name, &Canonical::Raw(value)),
        None => builder.add("without", &Canonical::Raw(name.as_bytes())),
    }
    *builder.finish().digest()
}

fn asked(rule: &Rule, caller: &Caller, parts: &Parts, body: &Canonical<'_>) -> Fingerprint {
    let asked = &rule.fingerprint;
    let mut builder = caller.fingerprints.builder();
    let mut add = |name: &str, value: &[u8]| builder.add(name, &Canonical::Raw(value));
    add("method", parts.method.as_str().as_bytes());
    add("path", path::compared(parts.uri.path()).as_bytes());
    if asked.query
        && let Some(query) = parts.uri.query()
    {
        add("query", query.as_bytes());
    }
    for name in &asked.headers {
        for line in lines(&parts.headers, name) {
            add(name.as_str(), &line);
        }
    }
    builder.add("body", body);
    builder.finish()
}

/// Whether a fingerprint says by whose cookies it was made: whoever has none else is known by them.
pub(crate) fn names_cookies(fingerprint: &Fingerprint) -> bool {
    part(fingerprint, CALLER).is_some_and(|part| part.iter().any(|byte| *byte != 0))
}

/// Whether two fingerprints were made by the same cookies, or neither by any.
pub(crate) fn same_cookies(one: &Fingerprint, other: &Fingerprint) -> bool {
    part(one, CALLER) == part(other, CALLER)
}

/// Whether a record is of the same caller and of the same place. Records of other releases do not
/// say.
pub(crate) fn is_of(stored: &Fingerprint, head: &[u8; 32]) -> bool {
    let head = Fingerprint::from_parts(Fingerprint::REQUEST, *head);
    stored.version() != Fingerprint::REQUEST
        || (same_cookies(stored, &head) && part(stored, PLACE) == part(&head, PLACE))
}

fn part(fingerprint: &Fingerprint, place: std::ops::Range<usize>) -> Option<&[u8]> {
    let is_ours = fingerprint.version() == Fingerprint::REQUEST;
    fingerprint.digest().get(place).filter(|_| is_ours)
}

/// The key of a request whose content is its key: requests with the same fingerprint are one
/// operation, and others never mismatch. Cookies are no content.
pub(crate) fn content_key(fingerprint: &Fingerprint) -> Key {
    let content = fingerprint.digest().get(..CALLER.start).unwrap_or_default();
    Key::content(&data_encoding::HEXLOWER.encode(content), b"")
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
