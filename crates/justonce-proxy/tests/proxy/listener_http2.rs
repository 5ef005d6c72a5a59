//! What is special about clients of HTTP/2.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use justonce_proxy::ListenerSettings;
use tokio::time::timeout;

use crate::parts::{Gateway, Upstream, listener, listener_settings, read_head, say, settings};

#[tokio::test]
async fn the_cookies_of_one_request_become_one_line() {
    let upstream = Upstream::start(|mut stream| async move {
        while let Some((head, _)) = read_head(&mut stream).await {
            let lines: Vec<_> = head.lines().filter(|line| line.starts_with("cookie")).collect();
            let back = lines.join("|");
            let length = back.len();
            say(&mut stream, &format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{back}"))
                .await;
        }
    })
    .await;
    let gateway = Gateway::to(upstream.address);
    let io = TokioIo::new(gateway.connect().await);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    for (sent, seen) in [
        (&["a=1", "b=2; c=3", "d=4"][..], "cookie: a=1; b=2; c=3; d=4"),
        (&["a=1"], "cookie: a=1"),
        (&[], ""),
    ] {
        let mut request = Request::builder().method(Method::GET).uri("http://shop/");
        for cookie in sent {
            request = request.header("cookie", *cookie);
        }
        let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await;
        let body = response.unwrap().into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, seen);
    }
}

#[tokio::test]
async fn a_connection_that_only_pings_is_closed_when_it_was_idle_for_too_long() {
    let idle = Duration::from_millis(500);
    let upstream = Upstream::fine().await;
    let limits = ListenerSettings { idle_timeout: idle, ..listener_settings() };
    let gateway = Gateway::start(settings(upstream.address), limits);
    let io = TokioIo::new(gateway.connect().await);
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        // Its PINGs are answered, and that is no use of the connection.
        .keep_alive_interval(idle / 20)
        .keep_alive_while_idle(true)
        .handshake(io)
        .await
        .unwrap();
    let ended = tokio::spawn(connection);
    let request = Request::builder().uri("http://shop/").body(Full::<Bytes>::default()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
    // It is told to go, so this is no error.
    timeout(idle * 20, ended).await.expect("it lives on").unwrap().unwrap();
}

/// One that opens no window for answers leaves them unread, and answers PINGs all the same.
#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_let_go_and_frees_the_upstream() {
    let idle = Duration::from_millis(300);
    let upstream = Upstream::start(|mut stream| async move {
        while read_head(&mut stream).await.is_some() {
            let long = "x".repeat(1 << 20);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", long.len());
            say(&mut stream, &format!("{head}{long}")).await;
        }
    })
    .await;
    let limits = ListenerSettings { idle_timeout: idle, ..listener_settings() };
    let mut settings = settings(upstream.address);
    settings.max_connections = 1;
    let gateway = Gateway::start(settings, limits);
    let io = TokioIo::new(gateway.connect().await);
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(io)
        .await
        .unwrap();
    let ended = tokio::spawn(connection);
    let request = Request::builder().uri("http://shop/").body(Full::<Bytes>::default()).unwrap();
    let _unread = sender.send_request(request).await.unwrap();

    let ended = timeout(idle * 20, ended).await;
    assert!(ended.is_ok(), "it holds its connection, and one to the upstream, for ever");
    let mut other = gateway.connect().await;
    say(&mut other, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n").await;
    let (head, _) = read_head(&mut other).await.unwrap();
    assert!(head.starts_with("http/1.1 200"), "{head}");
}

/// A replay is one piece: the server has handed it on long before the client has read it.
#[tokio::test]
async fn a_client_that_reads_slowly_but_steadily_gets_all_of_its_answer() {
    const LONG: usize = 1 << 20;
    let idle = Duration::from_millis(500);
    let limits = ListenerSettings { idle_timeout: idle, ..listener_settings() };
    let listener = listener(limits);
    let address = listener.local_addr().unwrap();
    let service = tower::service_fn(|_| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(Full::<Bytes>::from(vec![
            b'x';
            LONG
        ])))
    });
    let never = std::future::pending();
    tokio::spawn(listener.serve(move || service, never, idle));
    let io = TokioIo::new(tokio::net::TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(16 << 10)
        .initial_connection_window_size(64 << 10)
        .handshake(io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::builder().uri("http://shop/").body(Full::<Bytes>::default()).unwrap();
    let mut body = sender.send_request(request).await.unwrap().into_body();
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.unwrap_or_else(|error| panic!("cut off after {read} bytes: {error:?}"));
        read += frame.data_ref().map_or(0, Bytes::len);
        tokio::time::sleep(idle / 20).await; // tidy: allow-sleep: this is how slow it reads
    }
    assert_eq!(read, LONG);
}
