//! A replay goes to the caller that sent the first request, in whatever spelling, and to nobody
//! else.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::{AUTHORIZATION, COOKIE, HeaderName};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::Full;
use justonce_core::memory::MemoryStore;
use justonce_core::{Engine, ManualClock};
use justonce_http::{Idempotency, RequestBody, Rule, ScopePart};
use tower::{Layer, Service, ServiceExt, service_fn};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const USER: HeaderName = HeaderName::from_static("x-user");
const TENANT: HeaderName = HeaderName::from_static("x-tenant");

/// The schemes that this file knows.
const SCHEMES: [&str; 4] = ["bearer", "basic", "digest", "token"];

/// The headers that may say who sends a request.
pub(crate) fn headers() -> [HeaderName; 5] {
    [AUTHORIZATION, API_KEY, COOKIE, USER, TENANT]
}

/// Some scopes, by a number.
pub(crate) fn scope(number: u8) -> Vec<ScopePart> {
    match number % 8 {
        0 => vec![ScopePart::Caller],
        1 => vec![ScopePart::Principal(USER)],
        2 => vec![ScopePart::Cookie("s".into())],
        3 => vec![ScopePart::Principal(AUTHORIZATION), ScopePart::Cookie("s".into())],
        4 => vec![ScopePart::Caller, ScopePart::Tenant(TENANT)],
        5 => vec![ScopePart::Tenant(AUTHORIZATION)],
        6 => vec![ScopePart::Principal(USER), ScopePart::Principal(TENANT)],
        _ => vec![],
    }
}

/// Sends two requests that differ only in these headers.
pub(crate) async fn check(scope: Vec<ScopePart>, first: &HeaderMap, second: &HeaderMap) {
    let (one, other) = (Caller::of(&scope, first), Caller::of(&scope, second));
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let service = service_fn(move |_: Request<RequestBody<Full<Bytes>>>| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    });
    let engine = Engine::new(MemoryStore::new(ManualClock::default()));
    let layer = Idempotency::builder(engine).default_rule(Rule::default().scope(scope)).build();
    let mut app = layer.layer(service);
    let mut statuses = Vec::new();
    let mut replays = Vec::new();
    for headers in [first, second] {
        let mut request = Request::new(Full::<Bytes>::default());
        *request.method_mut() = http::Method::POST;
        request.headers_mut().extend(headers.clone());
        request.headers_mut().insert("idempotency-key", HeaderValue::from_static("k"));
        let Ok(ready) = app.ready().await;
        let Ok(response) = ready.call(request).await;
        statuses.push(response.status().as_u16());
        replays.push(response.headers().contains_key("idempotent-replayed"));
    }
    let told = format!("{first:?} {second:?} {statuses:?}");
    if statuses.first() != Some(&200) {
        // Who cannot be named is refused each time.
        assert_eq!(calls.load(Ordering::SeqCst), usize::from(statuses.last() == Some(&200)));
        return;
    }
    assert_eq!(replays.last() == Some(&true), one == other, "{told} {one:?} {other:?}");
    let executed = calls.load(Ordering::SeqCst);
    assert_eq!(executed == 2, statuses.last() == Some(&200) && one != other, "{told}");
}

/// Who sends a request.
#[derive(Debug, PartialEq, Eq)]
struct Caller {
    /// Each part of the scope that is there, with its place and all its values.
    parts: Vec<(usize, HeaderName, Vec<Vec<u8>>)>,
    /// The cookies, of callers that nothing else identifies: nothing for all others.
    cookies: Option<Option<Vec<u8>>>,
}

impl Caller {
    fn of(scope: &[ScopePart], headers: &HeaderMap) -> Self {
        let (mut parts, mut is_known) = (Vec::new(), false);
        for (place, part) in scope.iter().enumerate() {
            let mut add = |name: &HeaderName, values: Vec<Vec<u8>>| {
                let names = values.iter().any(|value| !value.trim_ascii().is_empty());
                if !values.is_empty() {
                    parts.push((place, name.clone(), values));
                }
                names
            };
            is_known |= match part {
                ScopePart::Caller => {
                    add(&AUTHORIZATION, lines(headers, &AUTHORIZATION))
                        || add(&API_KEY, lines(headers, &API_KEY))
                }
                ScopePart::Principal(name) => add(name, lines(headers, name)),
                ScopePart::Cookie(name) => add(&COOKIE, cookies(headers, name)),
                ScopePart::Tenant(name) => {
                    add(name, lines(headers, name));
                    false
                }
                _ => false,
            };
        }
        let is_by_caller = scope.iter().any(|part| !matches!(part, ScopePart::Tenant(_)));
        let all = lines(headers, &COOKIE);
        let all = (!all.is_empty()).then(|| all.join(&b"; "[..]));
        Self { parts, cookies: (is_by_caller && !is_known).then_some(all) }
    }
}

/// The lines of a header; the name of a scheme has no case, and any number of spaces behind it.
fn lines(headers: &HeaderMap, name: &HeaderName) -> Vec<Vec<u8>> {
    let lines = headers.get_all(name).iter().map(|line| line.as_bytes().to_vec());
    if *name != AUTHORIZATION {
        return lines.collect();
    }
    let spelled = |line: Vec<u8>| {
        let Some(at) = line.iter().position(|byte| *byte == b' ') else { return line };
        let scheme = line.get(..at).unwrap_or_default().to_ascii_lowercase();
        if !SCHEMES.iter().any(|known| known.as_bytes() == scheme) {
            return line;
        }
        let rest = line.get(at..).unwrap_or_default().trim_ascii_start();
        [&scheme, &b" "[..], rest].concat()
    };
    lines.map(spelled).collect()
}

fn cookies(headers: &HeaderMap, name: &str) -> Vec<Vec<u8>> {
    let lines = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    let named = pairs.filter_map(|pair| {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let (found, value) = (halves.next()?.trim_ascii(), halves.next()?.trim_ascii());
        (found == name.as_bytes()).then(|| value.to_vec())
    });
    named.collect()
}
