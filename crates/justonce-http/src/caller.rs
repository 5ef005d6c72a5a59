//! Whose a request is: scopes.

use std::borrow::Cow;
use std::hash::BuildHasherDefault;

use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderName};
use justonce_core::store::IdHasher;
use justonce_core::{FingerprintKey, Scope, ScopeError};
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::problem::{Problem, ProblemCode};
use crate::rule::{Rule, ScopePart};
use crate::{cookies, host};

/// How many namespaces a route remembers.
const REMEMBERED_SCOPES: usize = 1024;
/// What most callers show, with some room.
const SHOWN_BYTES: usize = 256;
/// What callers without an `Authorization` are known by.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The namespaces of a route's callers. Making one takes longer than everything else that is done
/// for a duplicate, and most callers come again.
#[derive(Debug)]
pub(crate) struct Scopes(Cache<[u8; 32], Caller, UnitWeighter, BuildHasherDefault<IdHasher>>);

/// Whose a request is.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) scope: Scope,
    pub(crate) fingerprints: FingerprintKey,
    /// Whether the scope should name the caller, and the request shows nothing that does: then its
    /// cookies are all there is.
    pub(crate) is_nameless: bool,
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
            let mut add_shown = |kind: u8, value: &[u8]| {
                add(&number.to_le_bytes());
                add(&[kind]);
                add(value);
            };
            match part {
                ScopePart::Principal(name) | ScopePart::Tenant(name) => {
                    lines(headers, name).for_each(|line| add_shown(0, &line));
                }
                ScopePart::Caller => {
                    lines(headers, &AUTHORIZATION).for_each(|line| add_shown(0, &line));
                    lines(headers, &API_KEY).for_each(|line| add_shown(1, &line));
                }
                ScopePart::Cookie(name) => {
                    cookies::named(headers, name).for_each(|value| add_shown(0, value));
                }
            }
        }
        let hash = *blake3::hash(&shown).as_bytes();
        if let Some(caller) = self.0.get(&hash) {
            return Ok(caller);
        }
        let caller = caller(rule, route, method, headers)?;
        self.0.insert(hash, caller.clone());
        Ok(caller)
    }
}

/// The namespace of a request's key: route, method and whose it is.
fn caller(
    rule: &Rule,
    route: &str,
    method: &http::Method,
    headers: &HeaderMap,
) -> Result<Caller, ScopeError> {
    let mut builder = Scope::builder().route(route).part("method", method.as_str());
    let mut is_named = false;
    for (number, part) in rule.scope.iter().enumerate() {
        // A part that is missing differs from one that is empty, so strangers share no scope with
        // anybody. But what is empty names nobody.
        let mut secret =
            |builder: justonce_core::ScopeBuilder, kind: &str, value: Option<Shown>| {
                let Some(value) = value else { return builder };
                is_named |= !value.is_blank;
                builder.secret(format!("{kind}_{number}"), &value.text)
            };
        builder = match part {
            ScopePart::Principal(name) => secret(builder, "principal", shown(lines(headers, name))),
            ScopePart::Caller => {
                let credential = shown(lines(headers, &AUTHORIZATION));
                let is_enough = credential.as_ref().is_some_and(|shown| !shown.is_blank);
                let builder = secret(builder, "principal", credential);
                let key = || shown(lines(headers, &API_KEY));
                if is_enough { builder } else { secret(builder, "api_key", key()) }
            }
            ScopePart::Cookie(name) => {
                let values = cookies::named(headers, name).map(Cow::Borrowed);
                secret(builder, "cookie", shown(values))
            }
            ScopePart::Tenant(name) => match shown(lines(headers, name)) {
                Some(value) => builder.tenant(value.text),
                None => builder,
            },
        };
    }
    let scope = builder.build()?;
    let is_nameless = !is_named && rule.scope.iter().any(ScopePart::names_caller);
    Ok(Caller { fingerprints: FingerprintKey::of(&scope), scope, is_nameless })
}

/// The problem of a caller whose scope cannot be told.
pub(crate) fn scopeless(error: &ScopeError) -> Problem {
    tracing::info!(target: "justonce::request", %error, "the caller's scope cannot be told");
    let detail = "It cannot be told whose the key is: a header that says so is too long.";
    Problem::new(ProblemCode::KeyInvalid, detail)
}

/// The lines of a header. The host has one spelling, wherever it stood.
pub(crate) fn lines<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = Cow<'h, [u8]>> {
    let host = if *name == HOST { host::compared(headers) } else { None };
    let others = if host.is_some() { None } else { Some(headers.get_all(name)) };
    let others = others.into_iter().flatten();
    host.into_iter().chain(others.map(|line| Cow::Borrowed(line.as_bytes())))
}

/// What a caller showed.
struct Shown {
    /// All values as one text, none of which can pose as another.
    text: String,
    is_blank: bool,
}

fn shown<'h>(values: impl Iterator<Item = Cow<'h, [u8]>>) -> Option<Shown> {
    values
        .map(|value| Shown { is_blank: value.trim_ascii().is_empty(), text: text(&value) })
        // A line break cannot be in a value.
        .reduce(|all, one| Shown {
            is_blank: all.is_blank && one.is_blank,
            text: format!("{}\n{}", all.text, one.text),
        })
}

fn text(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if text.bytes().all(is_shown_as_it_is) => text.to_owned(),
        _ => format!("\0{}", data_encoding::HEXLOWER.encode(value)),
    }
}

/// What [`http::HeaderValue::to_str`] takes.
const fn is_shown_as_it_is(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte < 127)
}
