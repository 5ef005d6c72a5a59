//! What passes through unchanged, and what is changed on the way.

use std::time::Duration;

use http::HeaderValue;
use justonce_proxy::{HostHeader, UpstreamAddress};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::parts::{
    Gateway, OK, Upstream, listener, listener_settings, proxy_settings, read_answer, read_head,
    read_rest, say, settings, shout,
};

/// An upstream that tells which heads it got.
async fn recorder() -> (Upstream, mpsc::UnboundedReceiver<String>) {
    let (heads, seen) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |mut stream| {
        let heads = heads.clone();
        async move {
            while let Some((head, _)) = read_head(&mut stream).await {
                let mut lines: Vec<_> = head.trim_end().lines().collect();
                if let Some(headers) = lines.get_mut(1..) {
                    headers.sort_unstable();
                }
                heads.send(lines.join("\n")).unwrap();
                say(&mut stream, OK).await;
            }
        }
    })
    .await;
    (upstream, seen)
}

#[tokio::test]
async fn upstreams_learn_who_asked() {
    let (upstream, mut heads) = recorder().await;
    let gateway = Gateway::to(upstream.address);
    let mut client = gateway.connect().await;
    say(&mut client, "GET /a?b=c HTTP/1.1\r\nHost: shop\r\nX-Own: 1\r\n\r\n").await;
    assert_eq!(read_answer(&mut client).await.1, "ok");
    assert_eq!(
        heads.recv().await.unwrap(),
        "get /a?b=c http/1.1\nforwarded: for=127.0.0.1;host=shop;proto=http\nhost: shop\n\
         x-forwarded-for: 127.0.0.1\nx-forwarded-host: shop\nx-forwarded-proto: http\nx-own: 1"
    );
    let request = "GET http://other/x HTTP/1.1\r\nHost: shop\r\nConnection: x-own, close\r\n\
                   X-Own: 1\r\nX-Forwarded-For: 10.1.1.1\r\nTE: trailers\r\n\r\n";
    say(&mut client, request).await;
    let (head, _) = read_answer(&mut client).await;
    assert!(head.contains("connection: close\r\n"), "{head}");
    assert_eq!(
        heads.recv().await.unwrap(),
        "get /x http/1.1\nforwarded: for=127.0.0.1;host=other;proto=http\nhost: other\n\
         te: trailers\nx-forwarded-for: 127.0.0.1\nx-forwarded-host: other\n\
         x-forwarded-proto: http"
    );
    assert_eq!(read_rest(&mut client).await, "");
}

#[tokio::test]
async fn an_upstream_can_have_its_own_name_and_a_base() {
    let (upstream, mut heads) = recorder().await;
    let below = UpstreamAddress::parse(&format!("http://{}/v1/", upstream.address)).unwrap();
    let mut settings = proxy_settings([below]);
    settings.host = HostHeader::Upstream;
    settings.via = true;
    let gateway = Gateway::start(settings, listener_settings());
    let mut client = gateway.connect().await;
    say(&mut client, "GET /a?b HTTP/1.1\r\nHost: shop\r\n\r\n").await;
    let (head, _) = read_answer(&mut client).await;
    assert!(head.contains("via: 1.1 justonce\r\n"), "{head}");
    assert_eq!(
        heads.recv().await.unwrap(),
        format!(
            "get /v1/a?b http/1.1\nforwarded: for=127.0.0.1;host=shop;proto=http\nhost: {}\n\
             via: 1.1 justonce\nx-forwarded-for: 127.0.0.1\nx-forwarded-host: shop\n\
             x-forwarded-proto: http",
            upstream.address
        )
    );
}

#[tokio::test]
async fn h48_the_host_is_the_clients_the_upstreams_or_a_name() {
    let (upstream, mut heads) = recorder().await;
    let own = upstream.address.to_string();
    for (host, expected) in [
        (HostHeader::Client, "shop"),
        (HostHeader::Upstream, own.as_str()),
        (HostHeader::Name(HeaderValue::from_static("payments.internal")), "payments.internal"),
    ] {
        let mut settings = settings(upstream.address);
        settings.host = host;
        let gateway = Gateway::start(settings, listener_settings());
        for request in [
            "GET / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n",
            "GET http://shop/ HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n",
        ] {
            shout(gateway.address, request.as_bytes()).await;
            let head = heads.recv().await.unwrap();
            assert!(head.contains(&format!("\nhost: {expected}\n")), "{head}");
            assert!(head.contains("\nx-forwarded-host: shop\n"), "{head}");
        }
    }
}

#[tokio::test]
async fn answers_lose_their_headers_of_one_hop() {
    let upstream = Upstream::start(|mut stream| async move {
        read_head(&mut stream).await;
        let head = "HTTP/1.1 200 Fine\r\nConnection: close, x-hop\r\nX-Hop: 1\r\nX-Kept: 2\r\n\
                    Set-Cookie: a\r\nSet-Cookie: b\r\nKeep-Alive: timeout=5\r\n\
                    Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
        say(&mut stream, head).await;
    })
    .await;
    let gateway = Gateway::to(upstream.address);
    let mut client = gateway.connect().await;
    say(&mut client, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n").await;
    let (head, _) = read_head(&mut client).await.unwrap();
    let (first, headers) = head.split_once("\r\n").unwrap();
    assert_eq!(first, "http/1.1 200 fine");
    let mut headers: Vec<_> =
        headers.lines().filter(|line| !line.is_empty() && !line.starts_with("date")).collect();
    headers.sort_unstable();
    assert_eq!(
        headers,
        ["set-cookie: a", "set-cookie: b", "transfer-encoding: chunked", "x-kept: 2"]
    );
}

#[tokio::test]
async fn old_clients_and_bodiless_answers_work() {
    let (upstream, mut heads) = recorder().await;
    let gateway = Gateway::to(upstream.address);
    let answer = shout(gateway.address, b"GET /old HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 200 OK"), "{answer}");
    assert!(answer.ends_with("ok"), "{answer}");
    let head = heads.recv().await.unwrap();
    assert!(head.starts_with("get /old http/1.1"), "{head}");
    assert!(head.contains(&format!("host: {}", upstream.address)), "{head}");

    let request = b"HEAD / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n";
    let bodiless = Upstream::start(|mut stream| async move {
        read_head(&mut stream).await;
        say(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n").await;
        let _ = stream.read_u8().await;
    })
    .await;
    let gateway = Gateway::to(bodiless.address);
    let answer = shout(gateway.address, request).await;
    assert!(answer.contains("content-length: 1234\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn expectations_are_met_here() {
    let (upstream, mut heads) = recorder().await;
    let gateway = Gateway::to(upstream.address);
    let mut client = gateway.connect().await;
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    say(&mut client, head).await;
    let (interim, _) = read_head(&mut client).await.unwrap();
    assert!(interim.starts_with("http/1.1 100"), "{interim}");
    say(&mut client, "hi").await;
    assert!(!heads.recv().await.unwrap().contains("expect"));
}

/// Echoes bytes after switching protocols, the first of them with the answer.
async fn switch(mut stream: TcpStream) {
    let (head, _) = read_head(&mut stream).await.unwrap();
    assert!(head.contains("connection: upgrade\r\n"), "{head}");
    assert!(head.contains("upgrade: echo\r\n"), "{head}");
    let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    say(&mut stream, &format!("{answer}early")).await;
    let (mut read, mut write) = stream.split();
    tokio::io::copy(&mut read, &mut write).await.unwrap();
}

#[tokio::test]
async fn other_protocols_pass_untouched() {
    let upstream = Upstream::start(switch).await;
    let gateway = Gateway::to(upstream.address);
    let mut client = gateway.connect().await;
    say(&mut client, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
        .await;
    let (head, rest) = read_head(&mut client).await.unwrap();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(head.contains("upgrade: echo\r\n"), "{head}");
    let mut early = rest;
    while early.len() < 5 {
        client.read_buf(&mut early).await.unwrap();
    }
    assert_eq!(early, b"early");

    // Bytes that would be malformed HTTP.
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let (mut read, mut write) = client.into_split();
    let sent = bytes.clone();
    let sending = tokio::spawn(async move {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut back = Vec::new();
    read.read_to_end(&mut back).await.unwrap();
    sending.await.unwrap();
    assert!(back == bytes, "{} bytes came back", back.len());
}

#[tokio::test]
async fn other_protocols_end_with_the_grace_period() {
    let (upstream, listener) = (Upstream::start(switch).await, listener(listener_settings()));
    let grace = Duration::from_millis(100);
    let mut gateway = Gateway::serve(settings(upstream.address), listener, grace);
    let mut client = gateway.connect().await;
    let head = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    say(&mut client, head).await;
    let (head, mut early) = read_head(&mut client).await.unwrap();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    while early.len() < 5 {
        client.read_buf(&mut early).await.unwrap();
    }
    gateway.stop();
    // It goes on until then.
    say(&mut client, "more").await;
    let mut more = [0; 4];
    client.read_exact(&mut more).await.unwrap();
    assert_eq!(&more, b"more");
    assert_eq!(gateway.ended().await.dropped, 1);
    assert_eq!(read_rest(&mut client).await, "");
}

#[tokio::test]
async fn a_refused_upgrade_is_an_ordinary_answer() {
    let upstream = Upstream::fine().await;
    let gateway = Gateway::to(upstream.address);
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    let answer = shout(gateway.address, request).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert!(answer.ends_with("ok"), "{answer}");
}

const STREAMED_BYTES: usize = 100 << 20;
static PIECE: [u8; 64 << 10] = [b'x'; 64 << 10];

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Takes all of a body, then sends as much back.
async fn take_and_give(mut stream: TcpStream) {
    let (_, first) = read_head(&mut stream).await.unwrap();
    let mut left = STREAMED_BYTES - first.len();
    let mut piece = PIECE;
    while left > 0 {
        left -= stream.read(&mut piece).await.unwrap();
    }
    say(&mut stream, &format!("HTTP/1.1 200 OK\r\ncontent-length: {STREAMED_BYTES}\r\n\r\n")).await;
    for _ in 0..STREAMED_BYTES / PIECE.len() {
        stream.write_all(&PIECE).await.unwrap();
    }
}

#[tokio::test]
async fn long_bodies_stream_both_ways_in_little_memory() {
    let upstream = Upstream::start(take_and_give).await;
    let mut settings = settings(upstream.address);
    settings.timeouts.response = Duration::from_secs(120);
    let gateway = Gateway::start(settings, listener_settings());
    let mut client = gateway.connect().await;
    let before = resident_bytes();
    let mut most = before;
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {STREAMED_BYTES}\r\n\r\n");
    say(&mut client, &head).await;
    for _ in 0..STREAMED_BYTES / PIECE.len() {
        client.write_all(&PIECE).await.unwrap();
        most = most.max(resident_bytes());
    }
    let (head, first) = read_head(&mut client).await.unwrap();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let mut left = STREAMED_BYTES - first.len();
    let mut piece = PIECE;
    while left > 0 {
        let read = client.read(&mut piece).await.unwrap();
        assert_ne!(read, 0, "{left} bytes are missing");
        left -= read;
        most = most.max(resident_bytes());
    }
    assert!(most - before < 24 << 20, "{} bytes", most - before);
}

/// Behind `Upgrade: h2c` come requests like all others that nothing would look at: none of them
/// would be protected, and all of them could say what only the gateway says.
#[tokio::test]
async fn h44_a_protocol_that_is_http_again_is_no_way_around() {
    for protocol in ["h2c", "H2C", "HTTP/2.0", "TLS/1.2, HTTP/1.1", "websocket, h2c"] {
        let upstream = Upstream::start(|mut stream| async move {
            let (head, _) = read_head(&mut stream).await.unwrap();
            if !head.contains("upgrade: ") {
                return say(&mut stream, crate::parts::OK).await;
            }
            say(
                &mut stream,
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
            )
            .await;
            let (smuggled, _) = read_head(&mut stream).await.unwrap();
            say(&mut stream, &smuggled).await;
        })
        .await;
        let gateway = Gateway::to(upstream.address);
        let head = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\
             HTTP2-Settings: AAMAAABk\r\n\r\n"
        );
        let smuggled = "POST /payments HTTP/1.1\r\nHost: a\r\nIdempotency-Fence: 99\r\n\r\n";
        let answer = shout(gateway.address, format!("{head}{smuggled}").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{protocol}: {answer}");
        assert!(!answer.contains("idempotency-fence"), "{protocol}: {answer}");
    }
}
