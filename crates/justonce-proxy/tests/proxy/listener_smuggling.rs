//! Requests that two readers could understand differently never reach an upstream.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::parts::{Gateway, OK, Upstream, read_answer, say, shout};

/// An upstream that records every byte and answers each head it sees.
async fn recorder() -> (Upstream, Arc<Mutex<Vec<u8>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let upstream = Upstream::start(move |mut stream| {
        let record = Arc::clone(&record);
        async move {
            let mut bytes = Vec::new();
            while let Ok(1..) = stream.read_buf(&mut bytes).await {
                let heads = bytes.windows(4).filter(|four| four == b"\r\n\r\n").count();
                record.lock().unwrap().append(&mut bytes);
                for _ in 0..heads {
                    let _ = stream.write_all(OK.as_bytes()).await;
                }
            }
        }
    })
    .await;
    (upstream, seen)
}

const REFUSED: &[(&str, &str)] = &[
    ("length and coding", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("coding and length", "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"),
    ("two lengths", "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde"),
    ("a list of lengths", "Content-Length: 4, 5\r\n\r\nabcde"),
    ("a signed length", "Content-Length: +4\r\n\r\nabcd"),
    ("a hexadecimal length", "Content-Length: 0x4\r\n\r\nabcd"),
    ("an endless length", "Content-Length: 99999999999999999999\r\n\r\nabcd"),
    ("another coding", "Transfer-Encoding: identity\r\n\r\nabcd"),
    ("one more coding", "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ("chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("almost chunked", "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("a tab and chunked", "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n"),
    ("a folded line", "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    ("a folded header", "X-A: b\r\n c\r\n\r\n"),
    ("a space before the colon", "Content-Length : 4\r\n\r\nabcd"),
    ("a space in a name", "Content Length: 4\r\n\r\nabcd"),
    ("a bare line feed", "X-A: b\nContent-Length: 4\r\n\r\nabcd"),
    ("a bare carriage return", "X-A: b\rContent-Length: 4\r\n\r\nabcd"),
    ("a head ended by line feeds", "X-A: b\n\nabcd"),
    ("a zero byte", "X-A: b\0c\r\n\r\n"),
    ("no name", ": b\r\n\r\n"),
    ("no colon", "X-A\r\n\r\n"),
    ("a second host", "Host: other\r\n\r\n"),
];

#[tokio::test]
async fn shapes_with_two_meanings_are_refused() {
    let (upstream, seen) = recorder().await;
    let gateway = Gateway::to(upstream.address);
    for (name, rest) in REFUSED {
        let request = format!("POST /first HTTP/1.1\r\nHost: a\r\n{rest}");
        let smuggled = format!("{request}GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = shout(gateway.address, smuggled.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{name}: {answer:?}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{name}: {answer:?}");
    }
    assert_eq!(String::from_utf8_lossy(&seen.lock().unwrap()), "");
}

#[tokio::test]
async fn request_lines_with_two_meanings_are_refused() {
    let (upstream, seen) = recorder().await;
    let gateway = Gateway::to(upstream.address);
    for line in [
        "GET / HTTP/1.1 HTTP/1.1\r\n",
        "GET  / HTTP/1.1\r\n",
        "GET /a b HTTP/1.1\r\n",
        "GET /\x00 HTTP/1.1\r\n",
        "GET / HTTP/1.1\n",
        "GET / HTTP/3.7\r\n",
        "G\x01T / HTTP/1.1\r\n",
    ] {
        let request = format!("{line}Host: a\r\n\r\n");
        let answer = shout(gateway.address, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{line:?}: {answer:?}");
    }
    let answer = shout(gateway.address, b"GET / HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "no host: {answer:?}");
    assert_eq!(String::from_utf8_lossy(&seen.lock().unwrap()), "");
}

#[tokio::test]
async fn bad_chunks_end_the_request_and_never_begin_another() {
    for chunks in [
        "4\nabcd\r\n0\r\n\r\n",
        "0x4\r\nabcd\r\n0\r\n\r\n",
        "-4\r\nabcd\r\n0\r\n\r\n",
        "4\r\nabcdef\r\n0\r\n\r\n",
        "11111111111111111\r\nabcd\r\n0\r\n\r\n",
        "g\r\nabcd\r\n0\r\n\r\n",
        "\r\n0\r\n\r\n",
        "4 4\r\nabcd\r\n0\r\n\r\n",
    ] {
        let (upstream, seen) = recorder().await;
        let gateway = Gateway::to(upstream.address);
        let head = "POST /first HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let request = format!("{head}{chunks}GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = shout(gateway.address, request.as_bytes()).await;
        assert!(answer.matches("HTTP/1.1").count() <= 1, "{chunks:?}: {answer:?}");
        let seen = String::from_utf8_lossy(&seen.lock().unwrap()).into_owned();
        assert!(!seen.contains("/second"), "{chunks:?}: {seen:?}");
        assert!(!seen.ends_with("0\r\n\r\n"), "{chunks:?} must not look whole: {seen:?}");
    }
}

#[tokio::test]
async fn a_bad_request_after_a_good_one_is_refused_too() {
    let (upstream, seen) = recorder().await;
    let gateway = Gateway::to(upstream.address);
    let mut client = gateway.connect().await;
    say(&mut client, "POST /good HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabcd").await;
    assert_eq!(read_answer(&mut client).await.1, "ok");
    let bad = "POST /bad HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\
               Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    say(&mut client, bad).await;
    let answer = crate::parts::read_rest(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer:?}");
    let seen = String::from_utf8_lossy(&seen.lock().unwrap()).into_owned();
    assert!(seen.contains("/good") && !seen.contains("/bad"), "{seen:?}");
}

#[tokio::test]
async fn chunks_are_sent_on_as_what_they_mean() {
    let (upstream, seen) = recorder().await;
    let gateway = Gateway::to(upstream.address);
    let mut client = gateway.connect().await;
    let request = "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n\
                   2;note=x\r\nab\r\n02\r\ncd\r\n0\r\n\r\n";
    say(&mut client, request).await;
    let (head, _) = read_answer(&mut client).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    // The answer is as early as the head: the rest arrives when it does.
    while !seen.lock().unwrap().ends_with(b"0\r\n\r\n") {
        tokio::task::yield_now().await;
    }
    let seen = String::from_utf8_lossy(&seen.lock().unwrap()).into_owned();
    assert!(seen.contains("transfer-encoding: chunked\r\n"), "{seen}");
    assert!(!seen.contains("note"), "{seen}");
    assert!(seen.contains("ab") && seen.contains("cd"), "{seen}");
}

#[tokio::test]
async fn a_refused_head_is_answered_at_once_whatever_follows_it() {
    let (upstream, seen) = recorder().await;
    let gateway = Gateway::to(upstream.address);
    for line in [
        "Transfer-Encoding: chunked",
        "Content-Length: +4",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: identity",
    ] {
        for before in ["", "Content-Length: 4\r\n"] {
            if before.is_empty() && line.ends_with(": chunked") {
                continue;
            }
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{before}{line}\r\n\r\n");
            let answered = shout(gateway.address, head.as_bytes());
            let answer = tokio::time::timeout(Duration::from_secs(5), answered).await;
            let answer = answer.unwrap_or_else(|_| panic!("no answer to {head:?}"));
            assert!(answer.starts_with("HTTP/1.1 400 "), "{head:?}: {answer:?}");
        }
    }
    assert!(seen.lock().unwrap().is_empty());
}
