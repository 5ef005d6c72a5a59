//! HTTP/2 to upstreams: what arrives, and what counts as not sent.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use justonce_http::ResponseEffect;
use justonce_proxy::{HealthCheck, Protocol, Proxy, ProxyError, ProxySettings, UpstreamAddress};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::parts::{
    Dead, Frames as ServerFrames, Gateway, Upstream, listener_settings, proxy_settings, read_head,
    say, url,
};

type Respond = SendResponse<Bytes>;
type Connection = h2::server::Connection<TcpStream, Bytes>;

fn speaking(upstream: UpstreamAddress) -> ProxySettings {
    let mut settings = proxy_settings([upstream]);
    settings.protocol = Protocol::Http2;
    settings.breaker = None;
    settings
}

fn proxy(upstream: &Upstream) -> Proxy {
    Proxy::new(speaking(upstream.url())).unwrap()
}

/// An upstream that handles each request as told, by its number from 0 on its connection.
async fn serve<H>(handle: H) -> Upstream
where
    H: Fn(usize, Request<RecvStream>, Respond, &mut Connection) + Clone + Send + Sync + 'static,
{
    Upstream::start(move |stream| {
        let handle = handle.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let mut number = 0;
            while let Some(Ok((request, respond))) = connection.accept().await {
                handle(number, request, respond, &mut connection);
                number += 1;
            }
        }
    })
    .await
}

fn ok(mut respond: Respond) {
    let mut body = respond.send_response(Response::new(()), false).unwrap();
    body.send_data(Bytes::from_static(b"ok"), true).unwrap();
}

fn post() -> Request<Full<Bytes>> {
    Request::post("/pay?a=b").header("host", "shop").body(Full::from("pay")).unwrap()
}

/// The status of a payment, and what is known of it.
async fn pay(proxy: &Proxy) -> (u16, Option<ResponseEffect>) {
    let response = proxy.send(post()).await;
    let effect = response.extensions().get::<ProxyError>().map(|error| error.effect());
    let status = response.status().as_u16();
    response.into_body().collect().await.unwrap();
    (status, effect)
}

const NOT_EXECUTED: (u16, Option<ResponseEffect>) = (502, Some(ResponseEffect::NotExecuted));
const UNKNOWN: (u16, Option<ResponseEffect>) = (502, Some(ResponseEffect::Unknown));

#[tokio::test]
async fn requests_share_a_connection_and_have_the_form_of_http2() {
    let (heads, mut seen) = mpsc::unbounded_channel();
    let upstream = serve(move |_, request, respond, _| {
        let mut names: Vec<_> = request.headers().keys().map(ToString::to_string).collect();
        names.sort();
        let (version, method, uri) = (request.version(), request.method(), request.uri());
        heads.send(format!("{version:?} {method} {uri} {names:?}")).unwrap();
        ok(respond);
    })
    .await;
    let proxy = proxy(&upstream);
    for _ in 0..3 {
        assert_eq!(pay(&proxy).await, (200, None));
        let head = seen.recv().await.unwrap();
        assert_eq!(head, "HTTP/2.0 POST http://shop/pay?a=b [\"content-length\"]");
    }
    let get = Request::get("/a").header("host", "shop").header("connection", "upgrade");
    let get = get.header("upgrade", "websocket").body(Full::<Bytes>::default()).unwrap();
    assert_eq!(proxy.send(get).await.status(), StatusCode::OK);
    assert_eq!(seen.recv().await.unwrap(), "HTTP/2.0 GET http://shop/a []");
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn bodies_and_trailers_pass_both_ways() {
    let upstream = serve(|_, request, mut respond, _| {
        tokio::spawn(async move {
            let mut body = request.into_body();
            let mut sent = Vec::new();
            while let Some(data) = body.data().await {
                sent.extend_from_slice(&data.unwrap());
            }
            let trailers = body.trailers().await.unwrap().unwrap();
            let mut back = respond.send_response(Response::new(()), false).unwrap();
            back.send_data(Bytes::from(sent), false).unwrap();
            back.send_trailers(trailers).unwrap();
        });
    })
    .await;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = [Frame::data(Bytes::from_static(b"pay")), Frame::trailers(trailers.clone())];
    let body = Frames(frames.into());
    let request = Request::post("/").header("host", "shop").header("te", "trailers");
    let response = proxy(&upstream).send(request.body(body).unwrap()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers(), Some(&trailers));
    assert_eq!(collected.to_bytes(), "pay");
}

/// A body of frames that are there already.
struct Frames(VecDeque<Frame<Bytes>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

#[tokio::test]
async fn a_refused_stream_was_not_executed_and_a_reset_one_is_unknown() {
    for (reason, expected) in [
        (Reason::REFUSED_STREAM, NOT_EXECUTED),
        (Reason::INTERNAL_ERROR, UNKNOWN),
        (Reason::CANCEL, UNKNOWN),
        (Reason::NO_ERROR, UNKNOWN),
    ] {
        let upstream = serve(move |_, _, mut respond, _| respond.send_reset(reason)).await;
        let proxy = proxy(&upstream);
        for _ in 0..5 {
            assert_eq!(pay(&proxy).await, expected, "{reason}");
        }
    }
}

/// Waits for the first request, says that nothing after some stream was looked at, and ends.
async fn go_away(stream: TcpStream, last: Option<u32>) {
    let mut frames = ServerFrames::accept(stream).await;
    frames.settings().await;
    frames.request().await.unwrap();
    if let Some(last) = last {
        frames.go_away(last).await;
    }
    frames.end().await;
}

#[tokio::test]
async fn what_comes_after_the_last_stream_of_a_goaway_was_not_executed() {
    let before = Upstream::start(|stream| go_away(stream, Some(0))).await;
    assert_eq!(pay(&proxy(&before)).await, NOT_EXECUTED);
    assert_eq!(before.connections(), 2, "it was sent once more");
    let cancel = Request::post("/cancel").header("host", "shop").body(Full::<Bytes>::default());
    let response = proxy(&before).send(cancel.unwrap()).await;
    let effect = response.extensions().get::<ProxyError>().map(|error| error.effect());
    assert_eq!((response.status().as_u16(), effect), NOT_EXECUTED);
    // It looked at ours, and then the connection ended.
    let after = Upstream::start(|stream| go_away(stream, Some(1))).await;
    assert_eq!(pay(&proxy(&after)).await, UNKNOWN);
}

#[tokio::test]
async fn a_client_that_reads_nothing_stops_no_other_on_its_connection() {
    let upstream = serve(|_, request, mut respond, _| {
        if request.uri().path() == "/large" {
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            body.send_data(Bytes::from(vec![7; 512 * 1024]), true).unwrap();
        } else {
            ok(respond);
        }
    })
    .await;
    let proxy = proxy(&upstream);
    let mut unread = Vec::new();
    for _ in 0..50 {
        let large = Request::get("/large").header("host", "shop").body(Full::<Bytes>::default());
        unread.push(proxy.send(large.unwrap()).await);
    }
    let paid = tokio::time::timeout(Duration::from_secs(20), pay(&proxy)).await;
    assert_eq!(paid.expect("the connection has room for others"), (200, None));
    assert_eq!(upstream.connections(), 1);
    let whole = unread.remove(0).into_body().collect().await.unwrap().to_bytes();
    assert_eq!(whole.len(), 512 * 1024);
}

#[tokio::test]
async fn an_empty_host_is_none_and_says_nothing_about_the_upstream() {
    let upstream = serve(|_, _, respond, _| ok(respond)).await;
    let mut settings = speaking(upstream.url());
    settings.breaker = proxy_settings([upstream.url()]).breaker;
    assert!(settings.breaker.is_some());
    let proxy = Proxy::new(settings).unwrap();
    for host in ["", "a b"] {
        for _ in 0..8 {
            let empty = Request::get("/").header("host", host).body(Full::<Bytes>::default());
            let status = proxy.send(empty.unwrap()).await.status();
            assert_eq!(status.as_u16(), if host.is_empty() { 200 } else { 502 }, "{host:?}");
        }
    }
    assert_eq!(pay(&proxy).await, (200, None), "the breaker is closed");
}

#[tokio::test]
async fn a_connection_that_breaks_off_leaves_it_unknown() {
    let silent = Upstream::start(|stream| go_away(stream, None)).await;
    assert_eq!(pay(&proxy(&silent)).await, UNKNOWN);
    assert_eq!(pay(&Proxy::new(speaking(url(Dead::new().address))).unwrap()).await, NOT_EXECUTED);

    let hanging = serve(|_, request, respond, _| {
        tokio::spawn(async move {
            let _held = (request, respond);
            std::future::pending::<()>().await;
        });
    })
    .await;
    let mut settings = speaking(hanging.url());
    settings.timeouts.response = Duration::from_millis(50);
    let late = (504, Some(ResponseEffect::Unknown));
    assert_eq!(pay(&Proxy::new(settings).unwrap()).await, late);

    let (begun, mut bodies) = mpsc::unbounded_channel();
    let cut = serve(move |_, _, mut respond, _| {
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        body.send_data(Bytes::from_static(b"half"), false).unwrap();
        begun.send(body).unwrap();
    })
    .await;
    let response = proxy(&cut).send(post()).await;
    assert_eq!(response.status(), StatusCode::OK);
    bodies.recv().await.unwrap().send_reset(Reason::CANCEL);
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test]
async fn after_a_goaway_requests_go_over_another_connection() {
    let upstream = serve(|number, _, respond, connection| {
        ok(respond);
        if number == 1 {
            connection.graceful_shutdown();
        }
    })
    .await;
    let proxy = proxy(&upstream);
    for _ in 0..10 {
        assert_eq!(pay(&proxy).await, (200, None));
    }
    assert!(upstream.connections() >= 3, "{}", upstream.connections());
}

/// Answers one request of each connection, and closes it when it is told to, without a goodbye. On
/// a thread of its own, so that it can go on while the caller's runtime does nothing.
fn closing(
    mut must_close: mpsc::UnboundedReceiver<()>,
    closed: std::sync::mpsc::Sender<()>,
) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let serving = async move {
        let listener = TcpListener::from_std(listener).unwrap();
        while let Ok((stream, _)) = listener.accept().await {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let (_, respond) = connection.accept().await.unwrap().unwrap();
            ok(respond);
            tokio::select! {
                _ = poll_fn(|cx| connection.poll_closed(cx)) => {}
                _ = must_close.recv() => {}
            }
            drop(connection);
            if closed.send(()).is_err() {
                return;
            }
        }
    };
    std::thread::spawn(move || runtime.block_on(serving));
    address
}

#[tokio::test]
async fn h40_a_connection_that_was_closed_between_two_requests_is_not_used() {
    let (close, must_close) = mpsc::unbounded_channel();
    let (closed, is_closed) = std::sync::mpsc::channel();
    let proxy = Proxy::new(speaking(url(closing(must_close, closed)))).unwrap();
    for _ in 0..20 {
        assert_eq!(pay(&proxy).await, (200, None));
        close.send(()).unwrap();
        // The runtime hears nothing of it: the next request comes at once.
        is_closed.recv().unwrap();
    }
}

#[tokio::test]
async fn more_than_a_hundred_requests_take_another_connection() {
    let (reached, mut held) = mpsc::unbounded_channel();
    let upstream = serve(move |_, request, respond, _| {
        reached.send((request, respond)).unwrap();
    })
    .await;
    let proxy = proxy(&upstream);
    let mut running = Vec::new();
    for _ in 0..101 {
        let proxy = proxy.clone();
        running.push(tokio::spawn(async move { pay(&proxy).await }));
    }
    let mut all = Vec::new();
    while all.len() < 101 {
        all.push(held.recv().await.unwrap());
    }
    assert_eq!(upstream.connections(), 2);
    let status = proxy.status().remove(0);
    assert_eq!((status.in_flight, status.connections, status.idle), (101, 2, 0));
    for (_, respond) in all {
        ok(respond);
    }
    for one in running {
        assert_eq!(one.await.unwrap(), (200, None));
    }
    assert_eq!(proxy.status().remove(0).idle, 2);
}

#[tokio::test]
async fn no_more_requests_share_a_connection_than_its_upstream_allows() {
    let (reached, mut held) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |stream| {
        let reached = reached.clone();
        async move {
            let mut builder = h2::server::Builder::new();
            let mut connection = builder.max_concurrent_streams(2).handshake(stream).await.unwrap();
            while let Some(Ok((_, respond))) = connection.accept().await {
                reached.send(respond).unwrap();
            }
        }
    })
    .await;
    let proxy = proxy(&upstream);
    let start = || {
        let proxy = proxy.clone();
        tokio::spawn(async move { pay(&proxy).await })
    };
    let running: Vec<_> = (0..4).map(|_| start()).collect();
    let mut all = Vec::new();
    while all.len() < 4 {
        all.push(held.recv().await.unwrap());
    }
    assert_eq!(upstream.connections(), 2);
    all.into_iter().for_each(ok);
    for one in running {
        assert_eq!(one.await.unwrap(), (200, None));
    }
}

#[tokio::test]
async fn health_is_asked_in_http2() {
    let upstream = serve(|_, request, respond, _| {
        assert_eq!(request.uri(), "http://shop/healthz");
        ok(respond);
    })
    .await;
    let mut settings = speaking(upstream.url());
    settings.host = justonce_proxy::HostHeader::Name(HeaderValue::from_static("shop"));
    settings.health = Some(HealthCheck::new("/healthz".parse().unwrap()));
    let proxy = Proxy::new(settings).unwrap();
    assert_eq!(proxy.check_health().await[0].failure, None);
}

#[tokio::test]
async fn h50_early_hints_of_http2_are_passed_on() {
    let upstream = serve(|_, _, mut respond, _| {
        let hints = Response::builder().status(103).header("link", "</a.css>").body(()).unwrap();
        respond.send_informational(hints).unwrap();
        ok(respond);
    })
    .await;
    let gateway = Gateway::start(speaking(upstream.url()), listener_settings());
    let mut client = gateway.connect().await;
    say(&mut client, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await;
    let (head, _) = read_head(&mut client).await.unwrap();
    assert_eq!(head.to_lowercase(), "http/1.1 103 early hints\r\nlink: </a.css>\r\n\r\n");
}
