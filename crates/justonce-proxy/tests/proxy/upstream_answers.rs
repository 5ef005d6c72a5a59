//! What becomes of unusual answers of an upstream.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use justonce_http::{ResponseEffect, Unframed};
use justonce_proxy::{
    MAX_RESPONSE_HEADERS, Proxy, ProxyBody, ProxyBodyError, ProxyError, ResponseTimeout,
};
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;

use crate::parts::{
    Gateway, OK, Upstream, listener_settings, proxy, read_answer, read_head, say, settings,
};

fn post() -> Request<Full<Bytes>> {
    let request = Request::builder().method(Method::POST).uri("/").header("host", "shop");
    request.body(Full::from("pay")).unwrap()
}

async fn text(response: Response<ProxyBody>) -> Result<Bytes, ProxyBodyError> {
    Ok(response.into_body().collect().await?.to_bytes())
}

/// An upstream that says this and closes.
async fn saying(answer: String) -> Upstream {
    Upstream::start(move |mut stream| {
        let answer = answer.clone();
        async move {
            read_head(&mut stream).await;
            say(&mut stream, &answer).await;
        }
    })
    .await
}

fn with_headers(count: usize) -> String {
    let mut answer = "HTTP/1.1 201 Created\r\ncontent-length: 2\r\n".to_owned();
    for number in 1..count {
        write!(answer, "x-{number}: {number}\r\n").unwrap();
    }
    answer + "\r\nok"
}

#[tokio::test]
async fn many_headers_pass_and_too_many_are_named() {
    for count in [101, MAX_RESPONSE_HEADERS] {
        let upstream = saying(with_headers(count)).await;
        let response = proxy(upstream.address).send(post()).await;
        assert_eq!(response.status(), StatusCode::CREATED);
        assert_eq!(response.headers().len(), count);
        assert_eq!(text(response).await.unwrap(), "ok");
    }
    let upstream = saying(with_headers(MAX_RESPONSE_HEADERS + 1)).await;
    let response = proxy(upstream.address).send(post()).await;
    assert_eq!(response.extensions().get(), Some(&ProxyError::HeadTooLarge));
    assert_eq!(response.extensions().get(), Some(&ResponseEffect::Unknown));
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn h51_answers_that_only_a_close_ends_are_marked_for_http_1_1() {
    let table = [
        ("HTTP/1.1 201 Created\r\n\r\nhalf", true),
        ("HTTP/1.1 201 Created\r\ntransfer-encoding: gzip\r\n\r\nhalf", true),
        ("HTTP/1.0 201 Created\r\n\r\nhalf", false),
        ("HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\nhalf", false),
        ("HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n", false),
        ("HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n\r\n", false),
        ("HTTP/1.1 204 No Content\r\n\r\n", false),
    ];
    for (answer, unframed) in table {
        let upstream = saying(answer.to_owned()).await;
        let response = proxy(upstream.address).send(post()).await;
        assert_eq!(response.extensions().get::<Unframed>().is_some(), unframed, "{answer}");
        assert_eq!(response.version(), Version::HTTP_11);
        text(response).await.unwrap();
    }
}

#[tokio::test]
async fn a_route_that_waits_long_for_answers_waits_as_long_inside_them() {
    let upstream = Upstream::start(|mut stream| async move {
        read_head(&mut stream).await;
        say(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf").await;
        tokio::time::sleep(Duration::from_millis(300)).await; // tidy: allow-sleep: the silence
        say(&mut stream, "half").await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let mut settings = settings(upstream.address);
    settings.read_timeout = Duration::from_millis(50);
    let proxy = Proxy::new(settings).unwrap();
    assert!(matches!(text(proxy.send(post()).await).await, Err(ProxyBodyError::Stalled)));
    let mut patient = post();
    patient.extensions_mut().insert(ResponseTimeout(Duration::from_secs(30)));
    assert_eq!(text(proxy.send(patient).await).await.unwrap(), "halfhalf");
}

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\
                     connection: x-own\r\nx-own: 1\r\nIdempotency-Outcome: final\r\n\r\n";

#[tokio::test]
async fn h50_early_hints_are_passed_on_before_the_answer() {
    let go_on = std::sync::Arc::new(Notify::new());
    let wait = std::sync::Arc::clone(&go_on);
    let upstream = Upstream::start(move |mut stream| {
        let wait = std::sync::Arc::clone(&wait);
        async move {
            while read_head(&mut stream).await.is_some() {
                say(&mut stream, HINTS).await;
                say(&mut stream, "HTTP/1.1 102 Processing\r\n\r\n").await;
                wait.notified().await;
                say(&mut stream, OK).await;
            }
        }
    })
    .await;
    let gateway = Gateway::start(settings(upstream.address), listener_settings());
    let mut client = gateway.connect().await;
    for _ in 0..3 {
        say(&mut client, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await;
        let mut bytes = Vec::new();
        while bytes.windows(4).filter(|four| four == b"\r\n\r\n").count() < 2 {
            assert_ne!(client.read_buf(&mut bytes).await.unwrap(), 0);
        }
        let early = String::from_utf8(bytes).unwrap();
        assert_eq!(
            early,
            "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n\
             HTTP/1.1 102 Processing\r\n\r\n"
        );
        go_on.notify_one();
        let (head, body) = read_answer(&mut client).await;
        assert!(head.starts_with("http/1.1 200 ok"), "{head}");
        assert_eq!(body, "ok");
    }
    // Clients of HTTP/1.0 know of no such answers.
    let mut old = gateway.connect().await;
    go_on.notify_one();
    say(&mut old, "GET / HTTP/1.0\r\nhost: a\r\n\r\n").await;
    let (head, _) = read_answer(&mut old).await;
    assert!(head.starts_with("http/1.0 200 ok"), "{head}");
}

#[tokio::test]
async fn h50_early_hints_that_come_with_the_answer_stay_in_front_of_it() {
    let upstream = Upstream::start(|mut stream| async move {
        while read_head(&mut stream).await.is_some() {
            say(&mut stream, &format!("{HINTS}{OK}")).await;
        }
    })
    .await;
    let gateway = Gateway::start(settings(upstream.address), listener_settings());
    let mut client = gateway.connect().await;
    // In one piece: the second is read before the first is answered.
    let get = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    say(&mut client, &get.repeat(2)).await;
    for _ in 0..2 {
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\nok") {
            seen.push(client.read_u8().await.unwrap());
        }
        let seen = String::from_utf8(seen).unwrap().to_ascii_lowercase();
        let (early, answer) = seen.split_once("\r\n\r\n").unwrap();
        let early_ones = early.starts_with("http/1.1 103");
        assert!(early_ones && answer.starts_with("http/1.1 200"), "{seen}");
    }
}
