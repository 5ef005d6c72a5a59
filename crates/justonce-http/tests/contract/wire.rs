//! What only shows on a connection: h04, h27 and h29 over HTTP/1.1 and HTTP/2.

use http::{HeaderValue, Response};
use justonce_http::Rule;

use crate::support::bodies::{self, Piece};
use crate::support::reply::{Reply, assert_problem};
use crate::support::socket::{exchange, http2, serve};
use crate::support::upstream::Upstream;
use crate::support::world::{World, request};

fn http1(headers: &str) -> String {
    format!(
        "POST /payments HTTP/1.1\r\nHost: a\r\n{headers}Connection: close\r\n\
         Content-Length: 2\r\n\r\n{{}}"
    )
}

#[tokio::test]
async fn h04_two_lines_are_refused_on_http_1() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let address = serve(world.router(&upstream, Rule::default())).await;
    for lines in [
        "Idempotency-Key: abc\r\nIdempotency-Key: def\r\n",
        "Idempotency-Key: abc\r\nX-Other: 1\r\nidempotency-key: abc\r\n",
        "Idempotency-Key: abc, def\r\n",
        "Idempotency-Key: \"abc\", \"def\"\r\n",
    ] {
        let answer = exchange(address, &http1(lines)).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("key-invalid"), "{answer}");
    }
    assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0));
}

#[tokio::test]
async fn h04_two_lines_are_refused_on_http_2() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let address = serve(world.router(&upstream, Rule::default())).await;
    let path = format!("http://{address}/payments");
    for lines in [&["abc", "def"][..], &["abc", "abc"], &["abc, def"]] {
        let lines: Vec<_> = lines.iter().map(|line| ("idempotency-key", *line)).collect();
        let reply = Reply::of(http2(address, request("POST", &path, &lines, "{}")).await).await;
        assert_problem(&reply, 400, "key-invalid");
    }
    assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0));
}

#[tokio::test]
async fn h01_one_operation_over_both_versions_of_http() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let address = serve(world.router(&upstream, Rule::default())).await;
    let first = exchange(address, &http1("Idempotency-Key: abc\r\n")).await;
    assert!(first.ends_with("payment 1"), "{first}");
    let headers = [("idempotency-key", "\"abc\"")];
    let over_http2 = request("POST", "http://a/payments", &headers, "{}");
    let second = Reply::of(http2(address, over_http2).await).await;
    assert_eq!((second.text(), second.is_replay()), ("payment 1", true));
}

#[tokio::test]
async fn h27_the_date_is_fresh() {
    let (world, upstream) = (
        World::new(),
        Upstream::answering(|| {
            let mut answer = Response::new("a".into());
            let old = HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT");
            answer.headers_mut().insert("date", old);
            answer
        }),
    );
    let address = serve(world.router(&upstream, Rule::default())).await;
    let first = exchange(address, &http1("Idempotency-Key: abc\r\n")).await;
    let second = exchange(address, &http1("Idempotency-Key: abc\r\n")).await;
    assert!(first.contains("date: Sun, 06 Nov 1994"), "{first}");
    assert!(second.contains("idempotent-replayed: true"), "{second}");
    assert_eq!(second.matches("\r\ndate: ").count(), 1, "{second}");
    assert!(!second.contains("1994"), "{second}");
}

fn with_trailers() -> Upstream {
    Upstream::answering(|| {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-checksum", HeaderValue::from_static("17"));
        let frames = [bodies::data("abc"), Piece::Trailers(trailers)];
        let mut answer = Response::new(bodies::of(frames, None));
        answer.headers_mut().insert("trailer", HeaderValue::from_static("x-checksum"));
        answer
    })
}

#[tokio::test]
async fn h29_trailers_go_over_http_1() {
    let (world, upstream) = (World::new(), with_trailers());
    let address = serve(world.router(&upstream, Rule::default())).await;
    for replayed in [false, true] {
        let answer = exchange(address, &http1("Idempotency-Key: abc\r\nTE: trailers\r\n")).await;
        assert!(answer.ends_with("3\r\nabc\r\n0\r\nx-checksum: 17\r\n\r\n"), "{answer}");
        assert_eq!(answer.contains("idempotent-replayed: true"), replayed);
    }
}

#[tokio::test]
async fn h29_trailers_go_over_http_2() {
    let (world, upstream) = (World::new(), with_trailers());
    let address = serve(world.router(&upstream, Rule::default())).await;
    for replayed in [false, true] {
        let path = format!("http://{address}/payments");
        let sent = request("POST", &path, &[("idempotency-key", "abc")], "{}");
        let reply = Reply::of(http2(address, sent).await).await;
        assert_eq!((reply.text(), reply.is_replay()), ("abc", replayed));
        assert_eq!(reply.trailers.unwrap().get("x-checksum").unwrap(), "17");
    }
}

#[tokio::test]
async fn h29_204_has_neither_body_nor_length_on_the_wire() {
    let (world, upstream) = (
        World::new(),
        Upstream::answering(|| Response::builder().status(204).body("".into()).unwrap()),
    );
    let address = serve(world.router(&upstream, Rule::default())).await;
    for _ in 0..2 {
        let answer = exchange(address, &http1("Idempotency-Key: abc\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 204") && answer.ends_with("\r\n\r\n"), "{answer}");
        assert!(!answer.contains("content-length") && !answer.contains("chunked"), "{answer}");
    }
}
