//! What a replay looks like: h27 to h29 and h32.

use super::every::on_every_store;
use super::http2;
use super::place::Place;
use super::service::reply;
use crate::gateway::stage::BODY;
use crate::support::upstream::Message;

on_every_store! {
    h27_status_body_and_headers_are_the_same_in_order_with_repeats,
    h27_what_is_for_one_hop_or_one_caller_is_not_replayed,
    h27_which_headers_are_stored_can_be_set,
    h28_replays_say_so_and_are_not_cached,
    h29_204_and_304_have_no_body,
    h29_1xx_is_never_stored,
    h29_trailers_are_kept,
    h29_compressed_answers_keep_their_encoding_and_bytes,
    h32_stored_bodies_are_compressed_where_that_helps_and_nobody_notices,
}

/// The first answer and its replay.
fn twice(place: &Place, more: &str, answer: Vec<u8>) -> [Message; 2] {
    let stage = place.answering(more, move |_, _| answer.clone());
    let headers = [("idempotency-key", "abc"), ("te", "trailers"), ("connection", "te")];
    let both = [(); 2].map(|()| stage.ask("POST /payments", &headers, BODY));
    assert_eq!(both.each_ref().map(Message::is_replay), [false, true], "{both:?}");
    assert_eq!(stage.service.calls(), 1);
    both
}

/// What an answer says that is neither ours nor of this very moment.
fn end_to_end(message: &Message) -> Vec<(String, String)> {
    const OURS: [&str; 3] = ["idempotent-replayed", "idempotency-key-lifetime", "date"];
    let lines = message.headers.iter().filter(|(name, _)| !OURS.contains(&name.as_str()));
    lines.cloned().collect()
}

fn h27_status_body_and_headers_are_the_same_in_order_with_repeats(place: &Place) {
    let body: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let headers = [
        ("x-zulu", "1"),
        ("content-type", "application/octet-stream"),
        ("vary", "a"),
        ("vary", "b"),
        ("vary", "a"),
        ("location", "/payments/1"),
        ("x-alpha", ""),
        ("cache-control", "private"),
        ("x-odd", "café"),
    ];
    let [first, second] = twice(place, "", reply("207 Multi-Status", &headers, &body));
    assert_eq!((first.status(), second.status()), (207, 207));
    assert!(first.body == body && second.body == body, "the bodies differ");
    let lines = end_to_end(&first);
    for (name, value) in headers {
        assert!(lines.contains(&(name.to_owned(), value.to_owned())), "{name} is lost");
    }
    assert_eq!(lines, end_to_end(&second));
    assert_eq!(second.all("vary"), ["a", "b", "a"]);
}

fn h27_what_is_for_one_hop_or_one_caller_is_not_replayed(place: &Place) {
    let headers = [
        ("connection", "keep-alive, X-Hop"),
        ("keep-alive", "timeout=5"),
        ("x-hop", "1"),
        ("set-cookie", "session=1"),
        ("set-cookie", "other=2"),
        ("www-authenticate", "Basic"),
        ("proxy-authenticate", "Basic"),
        ("authentication-info", "x"),
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("x-kept", "1"),
    ];
    let [first, second] = twice(place, "", reply("200 OK", &headers, b"a"));
    assert_eq!(first.all("set-cookie"), ["session=1", "other=2"]);
    assert_eq!(first.header("date"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    for (name, _) in &headers[1..8] {
        assert_eq!(second.header(name), None, "{name} is replayed");
    }
    assert_eq!((first.header("x-hop"), second.header("x-kept")), (None, Some("1")));
    let dates = second.all("date");
    assert!(dates.len() == 1 && !dates[0].contains("1994"), "the date is fresh: {dates:?}");
}

fn h27_which_headers_are_stored_can_be_set(place: &Place) {
    let more = "[defaults]\nkeep_headers = ['set-cookie']\ndrop_headers = ['x-trace']\n";
    let headers = [("set-cookie", "a"), ("x-trace", "1")];
    let [first, second] = twice(place, more, reply("200 OK", &headers, b""));
    assert_eq!((first.header("x-trace"), second.header("x-trace")), (Some("1"), None));
    assert_eq!(second.header("set-cookie"), Some("a"));
}

fn h28_replays_say_so_and_are_not_cached(place: &Place) {
    let stage = place.answering("", |_, request| {
        let forged = [("idempotent-replayed", "true"), ("idempotency-status", "unprotected")];
        let cached = [forged[0], forged[1], ("cache-control", "max-age=60")];
        let is_cached = request.start.contains("/cached");
        reply("200 OK", if is_cached { &cached } else { &forged }, b"")
    });
    let [first, second] = [(); 2].map(|()| stage.pay("abc"));
    assert_eq!(first.header("idempotent-replayed"), None, "also if the service claims it");
    assert_eq!((first.header("idempotency-status"), first.header("cache-control")), (None, None));
    assert!(second.is_replay());
    assert_eq!(second.header("cache-control"), Some("no-store"));
    let [_, cached] = [(); 2].map(|()| stage.post("/cached", "cached", BODY));
    assert_eq!(cached.all("cache-control"), ["max-age=60"]);
    for answer in [stage.ask("POST /payments", &[], BODY), stage.pay("a,b")] {
        assert_eq!(answer.header("idempotent-replayed"), None);
    }
}

fn h29_204_and_304_have_no_body(place: &Place) {
    let stage = place.answering("", |_, request| match request.start.contains("/204") {
        true => reply("204 No Content", &[("etag", "\"1\"")], b""),
        false => reply("304 Not Modified", &[("etag", "\"1\"")], b""),
    });
    for (path, status) in [("/204", 204), ("/304", 304)] {
        for replayed in [false, true] {
            let answer = stage.post(path, path, BODY);
            assert_eq!((answer.status(), answer.is_replay()), (status, replayed));
            assert_eq!((answer.header("etag"), answer.body.len()), (Some("\"1\""), 0));
            assert_eq!(answer.header("transfer-encoding"), None);
        }
    }
    assert_eq!(stage.service.calls(), 2);
}

fn h29_1xx_is_never_stored(place: &Place) {
    let early = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let answer = [&early[..], &reply("201 Created", &[], b"paid")].concat();
    let stage = place.answering("", move |_, _| answer.clone());
    let headers = [("idempotency-key", "abc")];
    for replayed in [false, true] {
        let mut call = stage.sending("POST /payments", &headers, BODY);
        if !replayed {
            // It is passed on (h50).
            assert_eq!(call.answer().status(), 103);
        }
        let answer = call.answer();
        assert_eq!((answer.status(), answer.text().as_str()), (201, "paid"));
        assert_eq!((answer.header("link"), answer.is_replay()), (None, replayed));
    }
    assert_eq!(stage.service.calls(), 1);
}

fn h29_trailers_are_kept(place: &Place) {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-checksum\r\n\r\n";
    let answer = format!("{head}3\r\nabc\r\n0\r\nx-checksum: 17\r\n\r\n").into_bytes();
    let stage = place.answering("", move |_, _| answer.clone());
    let headers = [("idempotency-key", "abc"), ("te", "trailers"), ("connection", "te")];
    for replayed in [false, true] {
        let answer = stage.ask("POST /payments", &headers, BODY);
        assert_eq!((answer.text().as_str(), answer.is_replay()), ("abc", replayed));
        assert_eq!(answer.trailers, [("x-checksum".to_owned(), "17".to_owned())]);
    }
    let answer = http2::post(stage.gateway.address, "/payments", &headers[..1], BODY);
    assert_eq!((answer.text().as_str(), answer.is_replay()), ("abc", true));
    assert_eq!(answer.trailers.get("x-checksum").unwrap(), "17");
    assert_eq!(stage.service.calls(), 1);
}

fn h29_compressed_answers_keep_their_encoding_and_bytes(place: &Place) {
    let bytes = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03K\x04\x00C\xbe\xb7\xe8\x01\x00";
    let headers = [("content-encoding", "gzip"), ("vary", "accept-encoding")];
    for answer in twice(place, "", reply("200 OK", &headers, bytes)) {
        assert_eq!(
            (&answer.body[..], answer.header("content-encoding")),
            (&bytes[..], Some("gzip"))
        );
        assert_eq!(answer.header("content-length"), Some("19"));
    }
}

fn h32_stored_bodies_are_compressed_where_that_helps_and_nobody_notices(place: &Place) {
    const SIZE: usize = 100_000;
    let text = b"a payment of 5 to bob. ".repeat(SIZE / 23);
    // Bytes that no pattern is in, the same in every run.
    let noise = (0..SIZE).scan(7_u64, |seed, _| {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(seed.to_be_bytes()[0])
    });
    let noise: Vec<u8> = noise.collect();
    let bodies = [text, noise];
    let sent = bodies.clone();
    let stage = place.answering("", move |number, _| reply("200 OK", &[], &sent[number - 1]));
    let stored = || {
        let metrics = stage.metrics();
        let line = "idempotency_store_bytes{state=\"completed\"} ";
        let line = metrics.lines().find_map(|text| text.strip_prefix(line));
        line.map_or(0, |bytes| bytes.parse::<usize>().unwrap())
    };
    let mut before = 0;
    for (key, body, helps) in [("text", &bodies[0], true), ("noise", &bodies[1], false)] {
        for replayed in [false, true] {
            let answer = stage.pay(key);
            assert_eq!((answer.status(), answer.is_replay()), (200, replayed));
            assert!(answer.body == *body, "{key} differs");
            assert_eq!(answer.header("content-encoding"), None);
        }
        let grown = stored() - before;
        assert_eq!(grown < SIZE / 2, helps, "{grown} bytes are stored for {key}");
        before += grown;
    }
}
