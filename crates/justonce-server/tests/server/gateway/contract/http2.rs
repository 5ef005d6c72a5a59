//! A caller that speaks HTTP/2.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};

/// A whole answer over HTTP/2.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The code of a problem.
    pub(crate) fn code(&self) -> String {
        let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        body["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }
}

/// A POST on a connection of its own, for the host that tests over HTTP/1.1 ask for too.
pub(crate) fn post(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &'static str,
) -> Answer {
    post_to(address, &format!("http://test{path}"), headers, body, &[])
}

/// The same for any host, with trailers behind the body.
pub(crate) fn post_to(
    address: SocketAddr,
    uri: &str,
    headers: &[(&str, &str)],
    body: &'static str,
    trailers: &[(&str, &str)],
) -> Answer {
    let mut request = Request::post(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let trailers: HeaderMap = trailers
        .iter()
        .map(|(name, value)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap())
        })
        .collect();
    let trailers = Some(trailers).filter(|trailers| !trailers.is_empty()).map(Ok);
    let body = Full::<Bytes>::from(body).with_trailers(std::future::ready(trailers));
    let request = request.body(body).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let shaken = handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.unwrap();
        tokio::spawn(connection);
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        Answer { status: head.status, headers: head.headers, body: body.to_bytes(), trailers }
    })
}
