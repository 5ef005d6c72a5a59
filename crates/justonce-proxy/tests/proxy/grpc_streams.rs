//! Streams of gRPC through a gateway, HTTP/2 on both sides.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use justonce_proxy::{ListenerSettings, Protocol};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::parts::{Fed, Gateway, Upstream, listener_settings, settings};

const LONG: Duration = Duration::from_secs(20);

/// Sends back each piece as it comes, and a status at the end. Tells the heads that came, and which
/// requests were broken off.
async fn echo() -> (Upstream, mpsc::UnboundedReceiver<HeaderMap>, oneshot::Receiver<h2::Error>) {
    let (heads, seen) = mpsc::unbounded_channel();
    let (broken, is_broken) = oneshot::channel();
    let broken = std::sync::Arc::new(std::sync::Mutex::new(Some(broken)));
    let upstream = Upstream::start(move |stream| {
        let (heads, broken) = (heads.clone(), std::sync::Arc::clone(&broken));
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let (head, mut body) = request.into_parts();
                heads.send(head.headers).unwrap();
                let broken = std::sync::Arc::clone(&broken);
                tokio::spawn(async move {
                    let mut back = respond.send_response(Response::new(()), false).unwrap();
                    while let Some(piece) = body.data().await {
                        match piece {
                            Ok(piece) => {
                                let _ = body.flow_control().release_capacity(piece.len());
                                back.send_data(piece, false).unwrap();
                            }
                            Err(error) => {
                                let broken = broken.lock().unwrap().take().unwrap();
                                broken.send(error).unwrap();
                                return;
                            }
                        }
                    }
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", "0".parse().unwrap());
                    back.send_trailers(trailers).unwrap();
                });
            }
        }
    })
    .await;
    (upstream, seen, is_broken)
}

async fn connected(gateway: &Gateway) -> http2::SendRequest<Fed> {
    let io = TokioIo::new(gateway.connect().await);
    let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn call(body: Fed) -> Request<Fed> {
    let request = Request::post("http://shop/shop.Chat/Talk").header("te", "trailers");
    request.header("content-type", "application/grpc").body(body).unwrap()
}

#[tokio::test]
async fn h52_streams_pass_in_both_directions_and_may_pause() {
    let (upstream, mut heads, _broken) = echo().await;
    let mut to = settings(upstream.address);
    to.protocol = Protocol::Http2;
    let body_timeout = Duration::from_millis(100);
    let gateway = Gateway::start(to, ListenerSettings { body_timeout, ..listener_settings() });
    let mut client = connected(&gateway).await;
    let (feed, body) = Fed::new();
    feed.send(Ok(Bytes::from_static(b"first"))).await.unwrap();
    let response = timeout(LONG, client.send_request(call(body))).await.unwrap().unwrap();
    assert_eq!(heads.recv().await.unwrap()["te"], "trailers");
    let mut back = response.into_body();
    let first = back.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "first");
    let pause = tokio::time::sleep(body_timeout * 3); // tidy: allow-sleep: others may not pause so
    pause.await;
    for number in 0..100_u8 {
        feed.send(Ok(Bytes::from(vec![number; 5_000]))).await.unwrap();
        let mut length = 0;
        while length < 5_000 {
            let piece = timeout(LONG, back.frame()).await.expect("it passes at once");
            length += piece.unwrap().unwrap().into_data().unwrap().len();
        }
    }
    drop(feed);
    let trailers = back.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
}

#[tokio::test]
async fn h52_a_stream_whose_client_leaves_is_ended_at_the_service() {
    let (upstream, mut heads, broken) = echo().await;
    let mut to = settings(upstream.address);
    to.protocol = Protocol::Http2;
    let gateway = Gateway::start(to, listener_settings());
    let mut client = connected(&gateway).await;
    let (feed, body) = Fed::new();
    feed.send(Ok(Bytes::from_static(b"first"))).await.unwrap();
    let _response = timeout(LONG, client.send_request(call(body))).await.unwrap().unwrap();
    heads.recv().await.unwrap();
    feed.send(Err(std::io::Error::other("it leaves"))).await.unwrap();
    let error = timeout(LONG, broken).await.expect("the service is told").unwrap();
    assert!(error.is_reset() && error.is_remote(), "{error}");
}
