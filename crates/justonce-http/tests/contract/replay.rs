//! What a replay looks like: h27 to h30 and h32.

use axum::body::Body;
use http::{HeaderMap, Response};
use justonce_core::store::Maintenance;
use justonce_core::{MAX_HEADERS, StateName};
use justonce_http::{Rule, headers};

use crate::support::bodies::{self, Piece};
use crate::support::reply::{Reply, assert_problem};
use crate::support::upstream::{Upstream, status};
use crate::support::world::{World, payment, send};

/// The first answer and its replay.
async fn twice(
    rule: Rule,
    answer: impl Fn() -> Response<Body> + Send + Sync + 'static,
) -> (Reply, Reply) {
    let (world, upstream) = (World::new(), Upstream::answering(answer));
    let app = world.app_with(&upstream, rule);
    let first = send(&app, payment("abc")).await;
    let second = send(&app, payment("abc")).await;
    assert_eq!(upstream.calls(), 1);
    (first, second)
}

fn answer(code: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
    let mut builder = Response::builder().status(code);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(body.into()).unwrap()
}

fn lines(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

#[tokio::test]
async fn h27_status_body_and_headers_are_the_same_in_order_with_repeats() {
    let body: Vec<u8> = (0..=255).collect();
    let sent = body.clone();
    let (first, second) = twice(Rule::default(), move || {
        let headers = [
            ("x-zulu", "1"),
            ("content-type", "application/octet-stream"),
            ("vary", "a"),
            ("vary", "b"),
            ("vary", "a"),
            ("location", "/payments/1"),
            ("x-alpha", ""),
            ("cache-control", "private"),
        ];
        let mut answer = answer(207, &headers, sent.clone());
        answer.headers_mut().append("x-odd", (&b"caf\xe9"[..]).try_into().unwrap());
        answer
    })
    .await;
    assert_eq!((first.code(), second.code()), (207, 207));
    assert_eq!((&first.body[..], &second.body[..]), (&body[..], &body[..]));
    let ours = |(name, _): &(String, String)| {
        !["idempotent-replayed", "idempotency-key-lifetime"].contains(&name.as_str())
    };
    let (first, mut second) = (lines(&first.headers), lines(&second.headers));
    second.retain(ours);
    assert_eq!(first.into_iter().filter(ours).collect::<Vec<_>>(), second);
}

const DROPPED: [(&str, &str); 12] = [
    ("connection", "close, X-Hop"),
    ("keep-alive", "timeout=5"),
    ("proxy-connection", "keep-alive"),
    ("te", "trailers"),
    ("upgrade", "h2c"),
    ("x-hop", "1"),
    ("set-cookie", "session=1"),
    ("www-authenticate", "Basic"),
    ("proxy-authenticate", "Basic"),
    ("authentication-info", "x"),
    ("proxy-authentication-info", "x"),
    ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
];

#[tokio::test]
async fn h27_per_hop_headers_cookies_authentication_and_the_date_are_not_replayed() {
    let (first, second) = twice(Rule::default(), || {
        let mut answer = answer(200, &DROPPED, "a");
        answer.headers_mut().append("set-cookie", "other=2".parse().unwrap());
        answer.headers_mut().append("x-kept", "1".parse().unwrap());
        answer
    })
    .await;
    for (name, _) in DROPPED {
        assert!(!second.headers.contains_key(name), "{name} is replayed");
    }
    assert_eq!(second.header("x-kept"), Some("1"));
    // The first caller gets what is meant for it.
    let cookies: Vec<_> = first.headers.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["session=1", "other=2"]);
    for name in ["www-authenticate", "authentication-info", "date"] {
        assert!(first.headers.contains_key(name), "{name} is kept from the first caller");
    }
    for name in ["connection", "keep-alive", "x-hop", "upgrade", "te"] {
        assert!(!first.headers.contains_key(name), "{name} is for one hop");
    }
}

#[tokio::test]
async fn h27_which_headers_are_stored_can_be_set() {
    let rule = Rule::default()
        .keep_headers(vec!["set-cookie".parse().unwrap(), "x-hop".parse().unwrap()])
        .drop_headers(vec!["x-trace".parse().unwrap()]);
    let headers = [("set-cookie", "a"), ("x-trace", "1"), ("connection", "x-hop"), ("x-hop", "1")];
    let (first, second) = twice(rule, move || answer(200, &headers, "")).await;
    assert_eq!(second.header("set-cookie"), Some("a"));
    assert_eq!(second.header("x-hop"), None, "what is for one hop is never kept");
    assert_eq!((first.header("x-trace"), second.header("x-trace")), (Some("1"), None));
}

#[tokio::test]
async fn h28_replays_say_so_and_only_they() {
    let forged = [("idempotent-replayed", "true"), ("idempotency-status", "unprotected")];
    let (first, second) = twice(Rule::default(), move || answer(200, &forged, "")).await;
    assert_eq!(first.header("idempotent-replayed"), None, "also if the service claims it");
    assert_eq!(first.header("idempotency-status"), None);
    assert_eq!(second.header("idempotent-replayed"), Some("true"));

    let (world, upstream) = (World::new(), Upstream::answering(move || answer(200, &forged, "")));
    let app = world.app(&upstream);
    let unprotected = send(&app, crate::support::world::request("POST", "/", &[], "")).await;
    assert_eq!(unprotected.header("idempotent-replayed"), None);
    assert_eq!(send(&app, payment("a,b")).await.header("idempotent-replayed"), None);
}

#[tokio::test]
async fn h28_replays_are_not_cached_unless_the_original_said_otherwise() {
    let (first, second) = twice(Rule::default(), || answer(200, &[], "")).await;
    assert_eq!(first.header("cache-control"), None);
    assert_eq!(second.header("cache-control"), Some("no-store"));
    let cached = [("cache-control", "max-age=60")];
    let (_, second) = twice(Rule::default(), move || answer(200, &cached, "")).await;
    assert_eq!(second.header("cache-control"), Some("max-age=60"));
}

#[tokio::test]
async fn h29_204_and_304_have_no_body() {
    for code in [204, 304] {
        let headers = [("etag", "\"1\""), ("content-length", "7")];
        let headers = if code == 304 { &headers[..] } else { &headers[..1] };
        let headers: Vec<(&'static str, &'static str)> = headers.to_vec();
        let (_, second) = twice(Rule::default(), move || answer(code, &headers, "")).await;
        assert_eq!((second.code(), second.is_replay()), (code, true));
        assert_eq!((second.header("etag"), second.body.len()), (Some("\"1\""), 0));
        let length = (code == 304).then_some("7");
        assert_eq!(second.header("content-length"), length, "as the original said");
        // A service that sends one all the same is not repeated in that.
        let (_, second) = twice(Rule::default(), move || answer(code, &[], "a body")).await;
        assert_eq!((second.code(), second.body.len()), (code, 0));
    }
}

#[tokio::test]
async fn h29_1xx_is_never_stored() {
    for code in [100, 101, 103] {
        let world = World::new();
        let upstream =
            Upstream::answering(move || answer(code, &[("idempotency-outcome", "final")], ""));
        assert_eq!(send(&world.app(&upstream), payment("abc")).await.code(), code);
        assert_eq!(world.state().await, StateName::Unknown);
    }
}

fn trailers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let line = |(name, value): &(&'static str, &'static str)| {
        (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
    };
    lines.iter().map(line).collect()
}

#[tokio::test]
async fn h29_trailers_are_kept() {
    let sent = trailers(&[("x-checksum", "1"), ("grpc-status", "0")]);
    for (size, exact) in [(3, None), (3, Some(3)), (200_000, None), (200_000, Some(200_000))] {
        let kept = sent.clone();
        let make = move || {
            let frames = [bodies::data(vec![7; size]), Piece::Trailers(kept.clone())];
            let mut answer = Response::new(bodies::of(frames, exact));
            answer.headers_mut().insert("trailer", "x-checksum, grpc-status".parse().unwrap());
            answer
        };
        let (first, second) = twice(Rule::default(), make).await;
        for reply in [first, second] {
            assert_eq!((reply.body.len(), reply.trailers.as_ref()), (size, Some(&sent)));
            assert_eq!(reply.header("trailer"), Some("x-checksum, grpc-status"));
        }
    }
}

#[tokio::test]
async fn h29_trailers_that_come_before_a_pause_are_kept() {
    let sent = trailers(&[("x-checksum", "1")]);
    let kept = sent.clone();
    let upstream = Upstream::new(move |_| {
        let (feed, body) = bodies::fed(None);
        feed.send(bodies::data("abc")).unwrap();
        feed.send(Piece::Trailers(kept.clone())).unwrap();
        // The end comes a turn later than the trailers.
        tokio::spawn(async move { drop(feed) });
        std::future::ready(Response::new(body))
    });
    let world = World::new();
    let app = world.app(&upstream);
    for _ in 0..2 {
        let reply = send(&app, payment("abc")).await;
        assert_eq!((reply.text(), reply.trailers.as_ref()), ("abc", Some(&sent)));
    }
}

#[tokio::test]
async fn h29_personal_trailers_are_not_replayed() {
    let sent = trailers(&[("set-cookie", "a"), ("x-checksum", "1")]);
    let make = move || {
        let frames = [bodies::data("abc"), Piece::Trailers(sent.clone())];
        Response::new(bodies::of(frames, None))
    };
    let (first, second) = twice(Rule::default(), make).await;
    assert!(first.trailers.unwrap().contains_key("set-cookie"));
    assert_eq!(second.trailers, Some(trailers(&[("x-checksum", "1")])));
}

#[tokio::test]
async fn h29_compressed_answers_keep_their_encoding_and_bytes() {
    let bytes: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03K\x04\x00C\xbe\xb7\xe8\x01\x00";
    let headers = [("content-encoding", "gzip"), ("content-length", "19"), ("vary", "accept")];
    let (first, second) = twice(Rule::default(), move || answer(200, &headers, bytes)).await;
    for reply in [first, second] {
        assert_eq!(reply.body, bytes);
        assert_eq!(reply.header("content-encoding"), Some("gzip"));
        assert_eq!(reply.header("content-length"), Some("19"));
    }
}

const LIMIT: usize = 1000;

fn of_size(size: usize, exact: bool) -> Response<Body> {
    let body = bodies::of([bodies::data(vec![b'x'; size])], exact.then_some(size as u64));
    let mut answer = Response::new(body);
    *answer.status_mut() = http::StatusCode::CREATED;
    answer.headers_mut().insert("location", "/reports/1".parse().unwrap());
    answer
}

#[tokio::test]
async fn h30_an_answer_at_the_limit_is_replayed() {
    for exact in [true, false] {
        let rule = Rule::default().max_stored_bytes(LIMIT);
        let (first, second) = twice(rule, move || of_size(LIMIT, exact)).await;
        assert_eq!((first.body.len(), second.body.len()), (LIMIT, LIMIT));
        assert!(second.is_replay());
    }
}

#[tokio::test]
async fn h30_an_answer_over_the_limit_is_delivered_whole_and_never_executed_again() {
    for (size, exact) in [(LIMIT + 1, true), (LIMIT + 1, false), (200_000, true), (200_000, false)]
    {
        let rule = Rule::default().max_stored_bytes(LIMIT);
        let (first, second) = twice(rule, move || of_size(size, exact)).await;
        assert_eq!((first.code(), first.body.len()), (201, size));
        assert_problem(&second, 409, "outcome-too-large");
        assert_eq!(second.header("location"), Some("/reports/1"));
        let body = second.json();
        assert_eq!(body["stored_status"], 201);
        assert_eq!(body["stored_bytes"], size);
        assert_eq!(body["retryable"], false);
        assert!(!second.is_replay());
    }
}

#[tokio::test]
async fn h30_the_key_is_never_freed() {
    let world = World::new();
    let upstream = Upstream::answering(|| of_size(LIMIT + 1, true));
    let app = world.app_with(&upstream, Rule::default().max_stored_bytes(LIMIT));
    send(&app, payment("abc")).await;
    assert_eq!(world.state().await, StateName::Completed);
    for _ in 0..3 {
        assert_problem(&send(&app, payment("abc")).await, 409, "outcome-too-large");
    }
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test]
async fn h30_headers_beyond_what_can_be_stored_count_as_too_large() {
    let many = || {
        let mut answer = of_size(5, true);
        for number in 0..=MAX_HEADERS {
            answer.headers_mut().append("x-many", number.to_string().parse().unwrap());
        }
        answer
    };
    let large = || {
        let mut answer = of_size(5, true);
        answer.headers_mut().append("x-large", "x".repeat(70_000).parse().unwrap());
        answer
    };
    type Make = fn() -> Response<Body>;
    let makes: [Make; 2] = [many, large];
    for make in makes {
        let (first, second) = twice(Rule::default(), make).await;
        assert_eq!((first.code(), first.body.len()), (201, 5));
        assert!(first.headers.len() > 200 || first.headers.contains_key("x-large"));
        assert_problem(&second, 409, "outcome-too-large");
        assert_eq!(second.header("location"), Some("/reports/1"));
        assert_eq!(second.json()["stored_status"], 201);
    }
}

#[tokio::test]
async fn h32_stored_bodies_are_compressed_where_that_helps_and_nobody_notices() {
    let random: Vec<u8> = {
        let entropy = justonce_core::Entropy::seeded(7);
        (0..3000).flat_map(|_| entropy.next_u64().to_le_bytes()).collect()
    };
    let text = "a payment of 5 to bob. ".repeat(1000).into_bytes();
    for (body, helps) in [(text, true), (random, false)] {
        let world = World::new();
        let sent = body.clone();
        let upstream = Upstream::answering(move || Response::new(Body::from(sent.clone())));
        let app = world.app(&upstream);
        send(&app, payment("abc")).await;
        let stored = world.probe.stats().await.unwrap();
        let bytes = stored.of(StateName::Completed).unwrap().bytes;
        assert_eq!(bytes < body.len() as u64 / 2, helps, "{bytes} bytes are stored");
        let replay = send(&app, payment("abc")).await;
        assert_eq!(replay.body, body);
        assert_eq!(replay.header("content-encoding"), None);
    }
}

#[tokio::test]
async fn h29_what_says_how_a_body_is_read_is_no_trailer() {
    let make = || {
        let sent = [
            ("x-checksum", "1"),
            ("content-length", "9"),
            ("transfer-encoding", "chunked"),
            ("connection", "x-own"),
            ("te", "gzip"),
            ("host", "elsewhere"),
            ("idempotency-outcome", "retryable"),
            ("idempotent-replayed", "true"),
        ];
        let frames = [bodies::data(vec![7; 3]), Piece::Trailers(trailers(&sent))];
        Response::new(bodies::of(frames, None))
    };
    let (first, second) = twice(Rule::default(), make).await;
    for reply in [first, second] {
        assert_eq!(reply.trailers, Some(trailers(&[("x-checksum", "1")])));
    }
}

#[tokio::test]
async fn h27_an_outcome_by_an_operator_is_replayed_like_any_other() {
    use justonce_core::{Outcome, Resolution, Resolve, Resolver, Why};
    for (resolution, code) in [
        (Resolution::Complete(Outcome::bytes("done")), 200),
        (Resolution::Fail(Outcome::bytes("failed")), 500),
        (Resolution::Fail(Outcome::builder().status(410).build().unwrap()), 410),
    ] {
        let (world, upstream) = (World::new(), Upstream::answering(|| status(500)));
        let app = world.app(&upstream);
        send(&app, payment("abc")).await;
        let page = world.probe.list(&Default::default()).await.unwrap();
        let (id, fence) = (page.records[0].id, world.record().await.fence);
        let resolve =
            Resolve { resolution, by: Resolver::operator("ann"), why: Why::new("looked") };
        let _ = world.engine.resolve(id, fence, resolve).await.unwrap();
        let replay = send(&app, payment("abc")).await;
        assert_eq!((replay.code(), replay.is_replay()), (code, true));
    }
    assert_eq!(headers::REPLAYED, "idempotent-replayed");
}
