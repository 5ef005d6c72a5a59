//! The caller of a request: its scope, and the cookies that may identify it.

use std::borrow::Cow;
use std::hash::BuildHasherDefault;

use http::header::{AUTHORIZATION, COOKIE, HOST, PROXY_AUTHORIZATION};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, request};
use justonce_core::store::IdHasher;
use justonce_core::{Canonical, FingerprintKey, Scope, ScopeBuilder, ScopeError};
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::certificate::ClientCertificate;
use crate::claims::{Claim, TokenRefusal, VerifiedClaims};
use crate::client::ClientAddress;
use crate::credentials::one_spelling;
use crate::problem::{Problem, ProblemCode};
use crate::rule::{Rule, ScopePart};
use crate::target::compared_host;

/// How many scopes a route caches.
const CACHED_SCOPES: usize = 1024;
/// Enough for the credentials of most callers.
const CREDENTIAL_BYTES: usize = 256;
/// The credential of callers without `Authorization`.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The scopes of a route's callers, cached: building one takes longer than everything else that is
/// done for a duplicate, and most callers come again.
#[derive(Debug)]
pub(crate) struct Scopes(Cache<[u8; 32], Caller, UnitWeighter, BuildHasherDefault<IdHasher>>);

/// What may identify the caller of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHead<'r> {
    pub(crate) method: &'r Method,
    pub(crate) headers: &'r HeaderMap,
    pub(crate) extensions: &'r Extensions,
    /// The claims of its token, if a route needs them and they were verified.
    pub(crate) claims: Option<&'r VerifiedClaims>,
}

impl<'r> RequestHead<'r> {
    pub(crate) fn of(parts: &'r request::Parts) -> Self {
        let (method, headers, extensions) = (&parts.method, &parts.headers, &parts.extensions);
        let claims = extensions.get().and_then(|Identified(verified)| verified.as_ref().ok());
        Self { method, headers, extensions, claims }
    }
}

/// Request extension: what was found out about its token. Only the layer sets it.
#[derive(Clone, Debug)]
pub(crate) struct Identified(pub(crate) Result<VerifiedClaims, TokenRefusal>);

/// The caller of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) scope: Scope,
    pub(crate) fingerprints: FingerprintKey,
    /// Whether the scope should identify the caller and the request has no credential that does.
    /// Then only its cookies may.
    pub(crate) is_anonymous: bool,
    /// A keyed hash of the host that it calls.
    host: [u8; 32],
    /// What stands for its cookies if it sends none.
    without_cookies: [u8; 32],
    /// What its limits are counted under; nothing if it is not identified, or nothing is limited.
    pub(crate) limited_as: Option<[u8; 32]>,
}

impl Caller {
    /// A keyed hash of the host.
    pub(crate) const fn host(&self) -> &[u8; 32] {
        &self.host
    }

    /// A keyed hash of all cookies, if they may identify the caller.
    pub(crate) fn cookies(&self, headers: &HeaderMap) -> Option<[u8; 32]> {
        self.is_anonymous.then(|| match all_cookies(headers) {
            None => self.without_cookies,
            Some(all) => hash_of(&self.fingerprints, "cookies", Some(&all)),
        })
    }
}

/// A missing value differs from an empty one.
fn hash_of(key: &FingerprintKey, name: &str, value: Option<&[u8]>) -> [u8; 32] {
    let mut builder = key.builder();
    match value {
        Some(value) => builder.add(name, &Canonical::Raw(value)),
        None => builder.add("without", &Canonical::Raw(name.as_bytes())),
    }
    *builder.finish().digest()
}

impl Default for Scopes {
    fn default() -> Self {
        let (hasher, lifecycle) = (BuildHasherDefault::default(), DefaultLifecycle::default());
        let weight = CACHED_SCOPES as u64;
        Self(Cache::with(CACHED_SCOPES, weight, UnitWeighter, hasher, lifecycle))
    }
}

impl Scopes {
    /// The caller of a request. Callers are cached by a hash, never by their credentials, and for
    /// each host that they call.
    pub(crate) fn of(
        &self,
        rule: &Rule,
        route: &str,
        head: &RequestHead<'_>,
    ) -> Result<Caller, ScopeError> {
        let headers = head.headers;
        let mut hashed = Vec::with_capacity(CREDENTIAL_BYTES);
        let mut add = |bytes: &[u8]| {
            hashed.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            hashed.extend_from_slice(bytes);
        };
        add(head.method.as_str().as_bytes());
        let host = compared_host(headers);
        add(&[u8::from(host.is_some())]);
        add(host.as_deref().unwrap_or_default());
        for (number, part) in rule.scope.iter().enumerate() {
            let mut add_value = |kind: u8, value: &[u8]| {
                add(&number.to_le_bytes());
                add(&[kind]);
                add(value);
            };
            match part {
                ScopePart::Principal(name) | ScopePart::Tenant(name) => {
                    lines(headers, name).for_each(|line| add_value(0, &line));
                }
                ScopePart::Caller => {
                    lines(headers, &AUTHORIZATION).for_each(|line| add_value(0, &line));
                    lines(headers, &API_KEY).for_each(|line| add_value(1, &line));
                    certificate(head).iter().for_each(|text| add_value(2, text.as_bytes()));
                }
                ScopePart::Cookie(name) => {
                    cookies_named(headers, name).for_each(|value| add_value(0, value));
                }
                ScopePart::Address => {
                    address(head).iter().for_each(|text| add_value(0, text.as_bytes()));
                }
                ScopePart::Claim(claim) => {
                    claimed(head, claim).iter().for_each(|text| add_value(0, text.as_bytes()));
                }
                ScopePart::Certificate => {
                    certificate(head).iter().for_each(|text| add_value(0, text.as_bytes()));
                }
            }
        }
        let hash = *blake3::hash(&hashed).as_bytes();
        if let Some(caller) = self.0.get(&hash) {
            return Ok(caller);
        }
        let caller = caller(rule, route, head)?;
        self.0.insert(hash, caller.clone());
        Ok(caller)
    }
}

/// Builds the scope of a request: its route, method and caller.
fn caller(rule: &Rule, route: &str, head: &RequestHead<'_>) -> Result<Caller, ScopeError> {
    let headers = head.headers;
    let builder = Scope::builder().route(route).part("method", head.method.as_str());
    let parts = Parts::of(rule, head, builder);
    let scope = parts.builder.build()?;
    let identifies = |part: &ScopePart| !matches!(part, ScopePart::Tenant(_));
    let is_by_caller = rule.scope.iter().any(identifies);
    let is_known = if is_by_caller { parts.is_identified } else { parts.has_tenant };
    let limited_as = if is_known && rule.caller_limits.is_some() {
        // With all methods together, so that another method is no way around a limit.
        let of_all = Parts::of(rule, head, Scope::builder().route(route)).builder.build()?;
        Some(*blake3::hash(of_all.as_str().as_bytes()).as_bytes())
    } else {
        None
    };
    let fingerprints = FingerprintKey::of(&scope);
    Ok(Caller {
        host: hash_of(&fingerprints, "host", compared_host(headers).as_deref()),
        without_cookies: hash_of(&fingerprints, "cookies", None),
        fingerprints,
        scope,
        is_anonymous: is_by_caller && !parts.is_identified,
        limited_as,
    })
}

/// The parts of a scope that a request has.
struct Parts {
    builder: ScopeBuilder,
    is_identified: bool,
    has_tenant: bool,
}

impl Parts {
    fn of(rule: &Rule, head: &RequestHead<'_>, mut builder: ScopeBuilder) -> Self {
        let headers = head.headers;
        let (mut is_identified, mut has_tenant) = (false, false);
        for (number, part) in rule.scope.iter().enumerate() {
            // A missing value differs from an empty one, so callers without a credential share no
            // scope with others. An empty value identifies no caller.
            let mut secret = |builder: ScopeBuilder, kind: &str, credential: Option<Credential>| {
                let Some(credential) = credential else { return builder };
                is_identified |= !credential.is_blank;
                builder.secret(format!("{kind}_{number}"), &credential.text)
            };
            builder = match part {
                ScopePart::Principal(name) => {
                    secret(builder, "principal", credential(lines(headers, name)))
                }
                ScopePart::Caller => {
                    let authorization = credential(lines(headers, &AUTHORIZATION));
                    let is_enough = authorization.as_ref().is_some_and(|value| !value.is_blank);
                    let builder = secret(builder, "principal", authorization);
                    if is_enough {
                        builder
                    } else {
                        let api_key = credential(lines(headers, &API_KEY));
                        let is_enough = api_key.as_ref().is_some_and(|value| !value.is_blank);
                        let builder = secret(builder, "api_key", api_key);
                        let certificate = certificate(head).filter(|_| !is_enough);
                        secret(builder, "certificate", certificate.map(known))
                    }
                }
                ScopePart::Cookie(name) => {
                    let values = cookies_named(headers, name).map(Cow::Borrowed);
                    secret(builder, "cookie", credential(values))
                }
                ScopePart::Address => secret(builder, "address", address(head).map(known)),
                ScopePart::Claim(claim) => secret(builder, "jwt", claimed(head, claim).map(known)),
                ScopePart::Certificate => {
                    secret(builder, "certificate", certificate(head).map(known))
                }
                ScopePart::Tenant(name) => match credential(lines(headers, name)) {
                    Some(value) => {
                        has_tenant |= !value.is_blank;
                        builder.tenant(value.text)
                    }
                    None => builder,
                },
            };
        }
        Self { builder, is_identified, has_tenant }
    }
}

/// The address of the client, if it is known.
fn address(head: &RequestHead<'_>) -> Option<String> {
    let ClientAddress(address) = head.extensions.get()?;
    Some(address.to_canonical().to_string())
}

/// The certificate of the client, if it has shown one.
fn certificate(head: &RequestHead<'_>) -> Option<String> {
    head.extensions.get().map(ClientCertificate::identity)
}

/// A claim of the request's token, if that was verified.
fn claimed(head: &RequestHead<'_>, claim: &Claim) -> Option<String> {
    head.claims?.identity(claim)
}

/// The problem of a caller whose scope cannot be built.
pub(crate) fn scope_problem(error: &ScopeError) -> Problem {
    tracing::info!(target: "justonce::request", %error, "the caller cannot be identified");
    let detail = "The caller cannot be identified: a header that identifies it is too long.";
    Problem::new(ProblemCode::KeyInvalid, detail)
}

/// The lines of a header. The host is normalised, and so is the scheme of credentials.
pub(crate) fn lines<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = Cow<'h, [u8]>> {
    let host = if *name == HOST { compared_host(headers) } else { None };
    let others = if host.is_some() { None } else { Some(headers.get_all(name)) };
    let others = others.into_iter().flatten().map(HeaderValue::as_bytes);
    let has_scheme = *name == AUTHORIZATION || *name == PROXY_AUTHORIZATION;
    let spelled = move |line| if has_scheme { one_spelling(line) } else { Cow::Borrowed(line) };
    host.into_iter().chain(others.map(spelled))
}

/// What identifies a caller.
struct Credential {
    /// All values as one unambiguous text.
    text: String,
    is_blank: bool,
}

/// What is known otherwise than from headers.
fn known(text: String) -> Credential {
    Credential { text, is_blank: false }
}

fn credential<'h>(values: impl Iterator<Item = Cow<'h, [u8]>>) -> Option<Credential> {
    values
        .map(|value| Credential { is_blank: value.trim_ascii().is_empty(), text: text(&value) })
        // A line break cannot be in a value.
        .reduce(|all, one| Credential {
            is_blank: all.is_blank && one.is_blank,
            text: format!("{}\n{}", all.text, one.text),
        })
}

fn text(value: &[u8]) -> String {
    // What `http::HeaderValue::to_str` accepts.
    let is_plain = |byte: u8| matches!(byte, b'\t' | b' '..=b'~');
    match std::str::from_utf8(value) {
        Ok(text) if text.bytes().all(is_plain) => text.to_owned(),
        _ => format!("\0{}", data_encoding::HEXLOWER.encode(value)),
    }
}

/// The values of all cookies with a name, in order. Names are case-sensitive, and values are not
/// interpreted.
fn cookies_named<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h [u8]> {
    let lines = headers.get_all(COOKIE).into_iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (found, value) = pair.split_at(at);
        let value = value.get(1..).unwrap_or_default();
        (found.trim_ascii() == name.as_bytes()).then_some(value.trim_ascii())
    })
}

/// All cookies as one line, if there are any: HTTP/2 may send each in a line of its own, which
/// means the same (RFC 9113, section 8.2.3).
fn all_cookies(headers: &HeaderMap) -> Option<Vec<u8>> {
    let mut lines = headers.get_all(COOKIE).into_iter().map(HeaderValue::as_bytes);
    let mut all = lines.next()?.to_vec();
    for line in lines {
        all.extend_from_slice(b"; ");
        all.extend_from_slice(line);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[&str]) -> HeaderMap {
        let line = |line: &&str| (COOKIE, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        lines.iter().map(line).collect()
    }

    fn of(lines: &[&str], name: &str) -> Vec<String> {
        let headers = headers(lines);
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        cookies_named(&headers, name).map(text).collect()
    }

    #[test]
    fn cookies_are_found_by_their_name() {
        assert_eq!(of(&["session=a; theme=b"], "session"), ["a"]);
        assert_eq!(of(&["theme=b;session=a"], "session"), ["a"]);
        assert_eq!(of(&["theme=b", "session = a "], "session"), ["a"]);
        assert_eq!(of(&["session=a=b=="], "session"), ["a=b=="]);
        assert_eq!(of(&["session=\"a\""], "session"), ["\"a\""]);
        assert_eq!(of(&["session="], "session"), [""]);
        assert_eq!(of(&["session=a; x=1", "session=b"], "session"), ["a", "b"]);
    }

    #[test]
    fn what_is_not_there_is_not_empty() {
        let none: [&str; 0] = [];
        assert_eq!(of(&[], "session"), none);
        for line in ["", "session", "Session=a", "xsession=a", "session x=a", "=session", ";;="] {
            assert_eq!(of(&[line], "session"), none, "{line}");
        }
    }

    #[test]
    fn lines_mean_the_same_as_one_line() {
        let of = |lines: &[&str]| all_cookies(&headers(lines));
        assert_eq!(of(&["a=1", "b=2"]), of(&["a=1; b=2"]));
        assert_eq!(of(&[]), None);
        assert_ne!(of(&[""]), None);
    }
}
