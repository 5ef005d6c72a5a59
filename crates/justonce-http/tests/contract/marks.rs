//! The headers that only the layer sends to the service: h46.

use axum::body::Body;
use http::{HeaderMap, HeaderName, HeaderValue};
use justonce_core::OnLapsed;
use justonce_http::{KeyPresence, KeySource};

use crate::support::bodies::{self, Piece};
use crate::support::reply::Reply;
use crate::support::socket::{exchange, http2, serve};
use crate::support::upstream::{Heard, Upstream};
use crate::support::world::{World, request, rule, send};

/// Names that some servers take for ours.
const ALIKE: [&str; 9] = [
    "Idempotency_Fence",
    "idempotency-fence",
    "IDEMPOTENCY_ATTEMPT",
    "Idempotency-Record",
    "idempotency_record",
    "Idempotency_Key",
    "Idempotency_Outcome",
    "Idempotent_Replayed",
    "Idempotency_Key-Lifetime",
];

fn forged() -> Vec<(&'static str, &'static str)> {
    ALIKE.iter().map(|name| (*name, "999")).collect()
}

/// A body whose trailers are forged.
fn with_trailers() -> Body {
    let mut trailers = HeaderMap::new();
    for name in ALIKE {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        trailers.append(name, HeaderValue::from_static("999"));
    }
    trailers.append("idempotency-key", HeaderValue::from_static("999"));
    trailers.append("x-sum", HeaderValue::from_static("17"));
    bodies::of([bodies::data("{}"), Piece::Trailers(trailers)], None)
}

#[track_caller]
fn assert_clean(heard: &Heard) {
    for (name, value) in heard.headers.iter().chain(&heard.trailers) {
        assert_ne!(value, "999", "{name} reached the service");
    }
}

#[tokio::test]
async fn h46_no_header_or_trailer_that_looks_like_ours_reaches_the_service() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_at(&upstream, "POST /off", rule(OnLapsed::Hold).key_presence(OFF));
    let mut number = 0;
    for (method, path) in [("POST", "/payments"), ("POST", "/off"), ("PUT", "/a"), ("GET", "/a")] {
        for key in [&[][..], &[("idempotency-key", "abc")]] {
            let headers = [&forged()[..], key].concat();
            send(&app, request(method, path, &headers, with_trailers())).await;
            number += 1;
            let heard = upstream.heard(number);
            assert_clean(&heard);
            assert_eq!(heard.trailers.get("x-sum").unwrap(), "17", "{method} {path}");
            // The caller's own key is the caller's to say.
            assert_eq!(heard.header("idempotency-key").is_some(), !key.is_empty());
        }
    }
}

const OFF: KeyPresence = KeyPresence::Off;

#[tokio::test]
async fn h46_a_request_that_is_stored_has_none_of_them() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let rule = rule(OnLapsed::Resume).store_requests(Vec::new()).key_source(KeySource::Content);
    let app = world.app_with(&upstream, rule);
    send(&app, request("POST", "/payments", &forged(), with_trailers())).await;
    let record = format!("{:?}", world.record().await);
    assert!(!record.contains("999"), "{record}");
    assert_clean(&upstream.heard(1));
}

#[tokio::test]
async fn h46_over_sockets_of_both_versions_of_http() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let address = serve(world.router(&upstream, rule(OnLapsed::Hold))).await;
    let lines: String =
        forged().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    for method in ["POST", "GET"] {
        exchange(
            address,
            &format!(
                "{method} /a HTTP/1.1\r\nHost: shop\r\nIdempotency-Key: h1\r\n{lines}\
                 Connection: close\r\nTransfer-Encoding: chunked\r\n\
                 Trailer: idempotency-fence\r\n\r\n2\r\n{{}}\r\n0\r\n\
                 Idempotency-Fence: 999\r\nIdempotency_Attempt: 999\r\n\r\n"
            ),
        )
        .await;
        let headers = [&forged()[..], &[("idempotency-key", "h2")]].concat();
        let sent = request(method, "http://shop/a", &headers, with_trailers());
        Reply::of(http2(address, sent).await).await;
    }
    for number in 1..=4 {
        assert_clean(&upstream.heard(number));
    }
}
