//! Trusted proxies in front, and connections with a PROXY protocol header (h49).

use std::time::Duration;

use justonce_proxy::{ForwardedHeader, Listener, ListenerSettings, TrustedProxies};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::unbounded_channel;

use crate::parts::{
    Gateway, OK, Upstream, listener, listener_settings, read_answer, read_head, read_rest, say,
    settings,
};

/// Long enough for what comes at once, and short enough to wait for.
const SHORT: Duration = Duration::from_millis(200);

/// An upstream that sends back the heads it gets.
async fn mirror() -> Upstream {
    Upstream::start(|mut stream| async move {
        while let Some((head, _)) = read_head(&mut stream).await {
            let length = head.len();
            say(&mut stream, &format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{head}"))
                .await;
        }
    })
    .await
}

fn trusting(ranges: &[&str]) -> TrustedProxies {
    let ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
    TrustedProxies { ranges, ..TrustedProxies::default() }
}

fn serve(upstream: &Upstream, listener: Listener) -> Gateway {
    Gateway::serve(settings(upstream.address), listener, Duration::from_secs(5))
}

/// What the upstream hears about the client when this is sent.
async fn heard(gateway: &Gateway, lines: &str) -> Vec<String> {
    let mut client = gateway.connect().await;
    heard_on(&mut client, lines).await
}

async fn heard_on(client: &mut TcpStream, lines: &str) -> Vec<String> {
    say(client, &format!("GET / HTTP/1.1\r\nhost: shop\r\n{lines}\r\n")).await;
    let (_, head) = read_answer(client).await;
    let about = |line: &&str| line.starts_with("x-") || line.starts_with("forwarded");
    let mut lines: Vec<_> = head.lines().filter(about).map(str::to_owned).collect();
    lines.sort();
    lines
}

const FORGED: &str = "x-forwarded-for: 203.0.113.9\r\nx-forwarded-for: 127.0.0.2\r\n\
                      x-forwarded-proto: https\r\nx-forwarded-host: other\r\n\
                      x-forwarded-port: 1\r\nx_forwarded_for: 6.6.6.6\r\nx-real-ip: 6.6.6.6\r\n\
                      forwarded: for=198.51.100.7;proto=https\r\n";

#[tokio::test]
async fn what_a_client_says_about_itself_is_replaced() {
    let upstream = mirror().await;
    for proxies in [TrustedProxies::default(), trusting(&["10.0.0.0/8", "127.0.0.2"])] {
        let gateway = serve(&upstream, listener(listener_settings()).with_proxies(proxies));
        assert_eq!(
            heard(&gateway, FORGED).await,
            [
                "forwarded: for=127.0.0.1;host=shop;proto=http",
                "x-forwarded-for: 127.0.0.1",
                "x-forwarded-host: shop",
                "x-forwarded-proto: http",
            ]
        );
    }
}

#[tokio::test]
async fn trailers_say_nothing_about_clients() {
    let (tell, mut heard) = unbounded_channel();
    let upstream = Upstream::start(move |mut stream| {
        let tell = tell.clone();
        async move {
            let (_, mut rest) = read_head(&mut stream).await.unwrap();
            while !rest.ends_with(b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut rest).await.unwrap(), 0);
            }
            tell.send(String::from_utf8(rest).unwrap().to_ascii_lowercase()).unwrap();
            say(&mut stream, OK).await;
        }
    })
    .await;
    let proxies = trusting(&["127.0.0.0/8"]);
    let gateway = serve(&upstream, listener(listener_settings()).with_proxies(proxies));
    let mut client = gateway.connect().await;
    let head = "POST / HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\
                trailer: x-sum, x-forwarded-for, forwarded, x_real_ip\r\n\r\n";
    say(&mut client, head).await;
    say(&mut client, "2\r\nok\r\n0\r\nx-sum: 1\r\nx-forwarded-for: 6.6.6.6\r\n").await;
    say(&mut client, "forwarded: for=6.6.6.6\r\nx_real_ip: 6.6.6.6\r\n\r\n").await;
    assert_eq!(read_answer(&mut client).await.1, "ok");
    let body = heard.recv().await.unwrap();
    assert!(body.contains("x-sum: 1") && !body.contains("6.6.6.6"), "{body}");
}

#[tokio::test]
async fn what_a_trusted_proxy_says_is_passed_on() {
    let upstream = mirror().await;
    let proxies = trusting(&["127.0.0.0/8"]);
    let gateway = serve(&upstream, listener(listener_settings()).with_proxies(proxies.clone()));
    let mut client = gateway.connect().await;
    // Each request of a connection may be another client's.
    for _ in 0..2 {
        assert_eq!(
            heard_on(&mut client, FORGED).await,
            [
                "forwarded: for=203.0.113.9;host=other;proto=https, for=127.0.0.2, for=127.0.0.1",
                "x-forwarded-for: 203.0.113.9, 127.0.0.2, 127.0.0.1",
                "x-forwarded-host: other",
                "x-forwarded-port: 1",
                "x-forwarded-proto: https",
                "x-real-ip: 6.6.6.6",
            ]
        );
        let direct = heard_on(&mut client, "").await;
        assert_eq!(direct.get(1).map(String::as_str), Some("x-forwarded-for: 127.0.0.1"));
    }
    let proxies = TrustedProxies { header: ForwardedHeader::Forwarded, ..proxies };
    let gateway = serve(&upstream, listener(listener_settings()).with_proxies(proxies));
    let heard = heard(&gateway, FORGED).await;
    assert_eq!(
        heard.first().map(String::as_str),
        Some("forwarded: for=198.51.100.7;host=shop;proto=https, for=127.0.0.1")
    );
}

#[tokio::test]
async fn what_is_no_address_is_not_passed_on() {
    let upstream = mirror().await;
    let proxies = trusting(&["127.0.0.1"]);
    let gateway = serve(&upstream, listener(listener_settings()).with_proxies(proxies));
    let many = format!("x-forwarded-for: {}\r\n", "127.0.0.1, ".repeat(2000));
    for lines in ["x-forwarded-for: 1.2.3.4, unknown\r\n", "x-forwarded-for: \u{e9}\r\n", &many] {
        let heard = heard(&gateway, lines).await;
        assert!(heard.iter().any(|line| line.starts_with("forwarded: for=unknown;")), "{heard:?}");
        let last = heard.iter().find_map(|line| line.strip_prefix("x-forwarded-for: ")).unwrap();
        assert!(last.split(", ").all(|hop| hop == "127.0.0.1") && last.len() < 400, "{last}");
    }
}

/// A header of version 2 for a client at 203.0.113.9.
fn v2(more: &[u8]) -> Vec<u8> {
    let addresses = [203, 0, 113, 9, 10, 0, 0, 1, 0x12, 0x34, 0, 80];
    let length = u16::try_from(addresses.len() + more.len()).unwrap().to_be_bytes();
    let start = b"\r\n\r\n\0\r\nQUIT\n\x21\x11";
    [&start[..], &length, &addresses, more].concat()
}

fn with_protocol(settings: ListenerSettings, ranges: &[&str]) -> Listener {
    let proxies = TrustedProxies { proxy_protocol: true, ..trusting(ranges) };
    listener(settings).with_proxies(proxies)
}

/// What the upstream hears on a connection that begins with this.
async fn heard_after(gateway: &Gateway, header: &[u8]) -> Vec<String> {
    let mut client = gateway.connect().await;
    // In pieces: a header may come as it likes.
    for byte in header {
        client.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    heard_on(&mut client, "x-forwarded-for: 6.6.6.6\r\n").await
}

#[tokio::test]
async fn connections_say_whose_they_are() {
    let upstream = mirror().await;
    let gateway = serve(&upstream, with_protocol(listener_settings(), &["127.0.0.0/8"]));
    let of_client = [
        "forwarded: for=203.0.113.9;host=shop;proto=http",
        "x-forwarded-for: 203.0.113.9",
        "x-forwarded-host: shop",
        "x-forwarded-proto: http",
    ];
    let line = b"PROXY TCP4 203.0.113.9 10.0.0.1 4660 80\r\n";
    assert_eq!(heard_after(&gateway, line).await, of_client);
    assert_eq!(heard_after(&gateway, &v2(&[])).await, of_client);
    // A client that used TLS up to the proxy.
    let secure = heard_after(&gateway, &v2(&[0x20, 0, 5, 1, 0, 0, 0, 0])).await;
    assert_eq!(secure.get(3).map(String::as_str), Some("x-forwarded-proto: https"));
    // The proxy itself, which is trusted.
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";
    let heard = heard_after(&gateway, local).await;
    assert_eq!(heard.get(1).map(String::as_str), Some("x-forwarded-for: 6.6.6.6, 127.0.0.1"));
    // Nobody knows who.
    let heard = heard_after(&gateway, b"PROXY UNKNOWN\r\n").await;
    let expected = "forwarded: for=unknown;host=shop;proto=http, for=127.0.0.1";
    assert_eq!(heard.first().map(String::as_str), Some(expected));
    assert_eq!(heard.get(1).map(String::as_str), Some("x-forwarded-for: 127.0.0.1"));
}

#[tokio::test]
async fn a_proxy_behind_another_counts_if_it_is_trusted_too() {
    let upstream = mirror().await;
    let ranges = ["127.0.0.0/8", "203.0.113.9"];
    let gateway = serve(&upstream, with_protocol(listener_settings(), &ranges));
    let heard = heard_after(&gateway, &v2(&[])).await;
    assert_eq!(heard.get(1).map(String::as_str), Some("x-forwarded-for: 6.6.6.6, 203.0.113.9"));
}

#[tokio::test]
async fn connections_that_say_nothing_or_nonsense_are_closed() {
    let upstream = mirror().await;
    let gateway = serve(&upstream, with_protocol(listener_settings(), &["127.0.0.0/8"]));
    let long = [&b"\r\n\r\n\0\r\nQUIT\n\x20\x00\xff\xff"[..], &[0; 5000]].concat();
    for bytes in [
        &b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PROXY TCP4 nobody 10.0.0.1 1 1\r\nGET / HTTP/1.1\r\nhost: shop\r\n\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x41\x00\x00GET / HTTP/1.1\r\nhost: shop\r\n\r\n",
        &long,
    ] {
        let mut client = gateway.connect().await;
        let _ = client.write_all(bytes).await;
        assert_eq!(read_rest(&mut client).await, "", "{bytes:?}");
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn nobody_else_may_say_whose_a_connection_is() {
    let upstream = mirror().await;
    let gateway = serve(&upstream, with_protocol(listener_settings(), &["10.0.0.0/8"]));
    let mut client = gateway.connect().await;
    let _ = client.write_all(&v2(&[])).await;
    let _ = client.write_all(b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n").await;
    assert_eq!(read_rest(&mut client).await, "");
    // Where it is not asked for, it is no HTTP.
    let plain = serve(&upstream, listener(listener_settings()));
    let mut client = plain.connect().await;
    say(&mut client, "PROXY TCP4 203.0.113.9 10.0.0.1 1 1\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await;
    assert!(read_rest(&mut client).await.starts_with("HTTP/1.1 400"));
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn the_end_does_not_wait_for_headers() {
    let upstream = mirror().await;
    let mut gateway = serve(&upstream, with_protocol(listener_settings(), &["127.0.0.0/8"]));
    let silent = gateway.connect().await;
    let mut begun = gateway.connect().await;
    begun.write_all(b"PROXY TC").await.unwrap();
    // Both were accepted before this one was served.
    assert_eq!(heard_after(&gateway, &v2(&[])).await.len(), 4);
    gateway.stop();
    let counts = gateway.ended().await;
    assert_eq!((counts.accepted, counts.dropped), (3, 0));
    drop((silent, begun));
}

#[tokio::test]
async fn a_header_has_a_time_to_come() {
    let upstream = mirror().await;
    let limits = ListenerSettings { header_timeout: SHORT, ..listener_settings() };
    let gateway = serve(&upstream, with_protocol(limits, &["127.0.0.0/8"]));
    for begin in [&b""[..], b"PROXY TC", b"PROXY TCP4 203.0.113.9 ", &v2(&[])[..20]] {
        let mut client = gateway.connect().await;
        client.write_all(begin).await.unwrap();
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "{begin:?}");
    }
}
