//! Keys: the parser, and a whole request whose key header holds the input.
#![no_main]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use justonce_fuzz::http::{Idempotency, KeySyntax, RequestBody, headers, parse_key};
use justonce_fuzz::memory::MemoryStore;
use justonce_fuzz::{Engine, Key, ManualClock};
use libfuzzer_sys::fuzz_target;
use tower::{Layer, ServiceExt, service_fn};

fuzz_target!(|input: &[u8]| {
    let (strict, lenient) =
        (parse_key(input, KeySyntax::Strict), parse_key(input, KeySyntax::Lenient));
    if strict.is_ok() {
        assert_eq!(strict, lenient, "what is strict is lenient too");
    }
    if let Ok(text) = &lenient {
        let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        assert_eq!(parse_key(quoted.as_bytes(), KeySyntax::Strict).as_ref(), Ok(text));
    }
    let Ok(line) = HeaderValue::from_bytes(input) else { return };
    let wanted = lenient.ok().filter(|text| Key::client(text).is_ok());
    let told = key_told_to_the_service(line);
    assert_eq!(told.is_some(), wanted.is_some());
    if let (Some(told), Some(wanted)) = (told, wanted) {
        assert_eq!(parse_key(told.as_bytes(), KeySyntax::Lenient), Ok(wanted));
    }
});

type Seen = Arc<Mutex<Option<HeaderValue>>>;

/// The key as the service behind the layer sees it, if the request gets that far.
fn key_told_to_the_service(line: HeaderValue) -> Option<HeaderValue> {
    let engine = Engine::new(MemoryStore::new(ManualClock::default()));
    let seen = Seen::default();
    let by_service = Arc::clone(&seen);
    let service = service_fn(move |request: Request<RequestBody<Full<bytes::Bytes>>>| {
        let key = request.headers().get(headers::KEY).cloned();
        if let Ok(mut seen) = by_service.lock() {
            *seen = key;
        }
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::default())))
    });
    let request =
        Request::post("/payments").header(headers::KEY, line).body(Full::default()).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().ok()?;
    let answered = Idempotency::new(engine).layer(service).oneshot(request);
    runtime.block_on(answered).ok()?;
    seen.lock().ok()?.take()
}
