//! HTTP/2 to upstreams: connections whose other end is gone, and requests that must come to an end.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use justonce_proxy::{Protocol, Proxy, ProxySettings};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::parts::{Frames, Gateway, Upstream, listener_settings, proxy_settings, read_head, say};

const LONG: Duration = Duration::from_secs(20);

fn speaking(upstream: &Upstream) -> ProxySettings {
    let mut settings = proxy_settings([upstream.url()]);
    settings.protocol = Protocol::Http2;
    settings.breaker = None;
    settings
}

/// Reads each request to its end, tells its trailers, and answers it.
async fn answer(stream: TcpStream, told: mpsc::UnboundedSender<Option<HeaderMap>>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let told = told.clone();
        tokio::spawn(async move {
            let mut body = request.into_body();
            while let Some(Ok(data)) = body.data().await {
                let _ = body.flow_control().release_capacity(data.len());
            }
            // Nobody may be interested.
            let _ = told.send(body.trailers().await.ok().flatten());
            let mut back = respond.send_response(Response::new(()), false).unwrap();
            back.send_data(Bytes::from_static(b"ok"), true).unwrap();
        });
    }
}

/// The host of the first connection vanishes: nothing comes back on it, and no error either.
#[tokio::test(start_paused = true)]
async fn a_connection_whose_other_end_is_gone_ends_although_requests_go_on() {
    let is_first = Arc::new(AtomicBool::new(true));
    let (told, _trailers) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |stream| {
        let (is_first, told) = (is_first.swap(false, Ordering::SeqCst), told.clone());
        async move {
            if !is_first {
                return answer(stream, told).await;
            }
            let mut frames = Frames::accept(stream).await;
            frames.settings().await;
            while frames.request().await.is_some() {}
        }
    })
    .await;
    let mut settings = speaking(&upstream);
    settings.timeouts.response = Duration::from_secs(5);
    let proxy = Proxy::new(settings).unwrap();
    let mut statuses = Vec::new();
    for _ in 0..24 {
        let pay = Request::post("/pay").header("host", "shop").body(Full::from("pay"));
        statuses.push(proxy.send(pay.unwrap()).await.status().as_u16());
    }
    // The connection is tested after 20 seconds of silence, for 20 seconds.
    assert!(statuses.contains(&200), "two minutes into the void: {statuses:?}");
    assert_eq!(upstream.connections(), 2);
}

#[tokio::test]
async fn trailers_of_one_hop_are_left_out_and_the_request_ends() {
    let (told, mut trailers) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |stream| answer(stream, told.clone())).await;
    let mut settings = speaking(&upstream);
    settings.timeouts.response = 2 * LONG;
    let proxy = Proxy::new(settings).unwrap();
    for name in ["connection", "keep-alive", "proxy-connection", "te", "upgrade"] {
        let mut sent = HeaderMap::new();
        sent.insert(name, HeaderValue::from_static("x"));
        sent.insert("x-sum", HeaderValue::from_static("9"));
        let body = Full::<Bytes>::from("pay").with_trailers(ready(Some(Ok::<_, Infallible>(sent))));
        let request = Request::post("/pay").header("host", "shop").body(body).unwrap();
        let response = timeout(LONG, proxy.send(request)).await;
        let response = response.unwrap_or_else(|_| panic!("{name}: the request does not end"));
        assert_eq!(response.status().as_u16(), 200, "{name}");
        let got = trailers.recv().await.unwrap().unwrap();
        assert_eq!(got.iter().count(), 1, "{name}: {got:?}");
        assert_eq!(got["x-sum"], "9");
    }
}

/// HTTP/2 has no 101, and over HTTP/1.1 it would end the client's connection as one of requests.
#[tokio::test]
async fn another_protocol_is_not_announced_to_a_client_that_asked_for_none() {
    let upstream = Upstream::start(|stream| async {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            for status in [101, 103] {
                let head = Response::builder().status(status).body(()).unwrap();
                respond.send_informational(head).unwrap();
            }
            let mut back = respond.send_response(Response::new(()), false).unwrap();
            back.send_data(Bytes::from_static(b"ok"), true).unwrap();
        }
    })
    .await;
    let gateway = Gateway::start(speaking(&upstream), listener_settings());
    let mut client = gateway.connect().await;
    say(&mut client, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await;
    let (head, _) = read_head(&mut client).await.unwrap();
    assert_eq!(head.to_lowercase(), "http/1.1 103 early hints\r\n\r\n");
}
