//! Two paths that one server could take for the same resource fall under one route.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use justonce_core::memory::MemoryStore;
use justonce_core::{Engine, ManualClock};
use justonce_http::{Idempotency, MatchedRoute, Pattern, RequestBody, Rule};
use tower::{Layer, ServiceExt, service_fn};

/// The routes beside the default one.
const PATTERNS: [&str; 6] = [
    "POST /pay",
    "POST /pay/{id}/refund",
    "POST /a/*",
    "POST /caf%C3%A9",
    "POST /x;y=1/%7Bz%7D",
    "POST /a%3Ab",
];

/// A request that was let through.
#[derive(Clone, Debug)]
struct Admitted {
    /// The path as it was sent.
    sent: String,
    route: String,
    /// The path as the service got it.
    got: String,
}

/// Sends both, and compares how servers read what arrives.
pub(crate) async fn check(one: &str, other: &str) {
    let (first, second) = (admit(one).await, admit(other).await);
    for admitted in first.iter().chain(&second) {
        // The service gets the resource that the client named.
        let (sent, got) = (resolved(&admitted.sent), resolved(&admitted.got));
        assert_eq!(sent, got, "{admitted:?}");
        assert_eq!(whole(&admitted.sent), whole(&admitted.got), "{admitted:?}");
        assert!(!admitted.got.contains("//") && admitted.got.starts_with('/'), "{admitted:?}");
    }
    if let (Some(first), Some(second)) = (first, second) {
        let is_same = readings(&first.got).iter().zip(&readings(&second.got)).any(|(a, b)| a == b);
        assert!(!is_same || first.route == second.route, "{first:?} {second:?}");
    }
}

/// What became of a request; nothing if it was refused.
async fn admit(path: &str) -> Option<Admitted> {
    let request = Request::post(path).body(Full::<Bytes>::default()).ok()?;
    let sent = request.uri().path().to_owned();
    let seen = Arc::<Mutex<Option<(String, String)>>>::default();
    let by_service = Arc::clone(&seen);
    let service = service_fn(move |request: Request<RequestBody<Full<Bytes>>>| {
        let route = request.extensions().get().map(|route: &MatchedRoute| route.name().to_owned());
        let got = request.uri().path().to_owned();
        *by_service.lock().unwrap_or_else(PoisonError::into_inner) = route.map(|name| (name, got));
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    });
    let engine = Engine::new(MemoryStore::new(ManualClock::default()));
    let layer = PATTERNS.iter().fold(Idempotency::builder(engine), |layer, text| {
        match Pattern::parse(text) {
            Ok(pattern) => layer.route(text, pattern, Rule::default()),
            Err(_) => layer,
        }
    });
    layer.build().layer(service).oneshot(request).await.ok()?;
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    seen.map(|(route, got)| Admitted { sent, route, got })
}

type Resource = Vec<Vec<u8>>;

/// The resource of a path, as each kind of server reads it. None of them heeds a slash at the end.
fn readings(path: &str) -> [Resource; 6] {
    let bytes = path.as_bytes();
    let until_zero = |bytes: &[u8]| bytes.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
    let slashes = |bytes: &[u8]| -> Vec<u8> {
        bytes.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect()
    };
    [
        // As it stands.
        segments(bytes),
        // Each segment decoded.
        segments(bytes).iter().map(|segment| decoded(segment)).collect(),
        // Decoded, without dot segments and empty ones.
        resolved(path),
        // Decoded as a whole, before it is divided.
        whole(path),
        // A backslash is a slash.
        without_dots(segments(&slashes(&decoded(bytes)))),
        // It ends at a zero byte.
        without_dots(segments(&until_zero(&decoded(bytes)).unwrap_or_default())),
    ]
}

/// By RFC 3986: segments are divided, then decoded; dot segments are resolved.
fn resolved(path: &str) -> Resource {
    without_dots(segments(path.as_bytes()).iter().map(|segment| decoded(segment)).collect())
}

fn whole(path: &str) -> Resource {
    without_dots(segments(&decoded(path.as_bytes())))
}

fn segments(path: &[u8]) -> Resource {
    let mut segments: Resource = path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect();
    if segments.last().is_some_and(Vec::is_empty) {
        segments.pop();
    }
    segments
}

fn without_dots(segments: Resource) -> Resource {
    let mut kept = Resource::new();
    for segment in segments {
        match segment.as_slice() {
            b"" | b"." => {}
            b".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    kept
}

fn decoded(bytes: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let (mut decoded, mut at) = (Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let escape = digit(bytes.get(at + 1)).zip(digit(bytes.get(at + 2)));
        match escape.filter(|_| *byte == b'%') {
            Some((high, low)) => {
                decoded.extend(u8::try_from(high * 16 + low));
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    decoded
}
