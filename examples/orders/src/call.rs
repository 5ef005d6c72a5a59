//! One request over HTTP, and what became of it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderName, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use justonce::http::headers::REPLAYED;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The header with the key.
pub const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// How long a response may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// An answer.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Its status.
    pub status: StatusCode,
    /// Whether it was said to be a replay.
    pub replayed: bool,
    /// Its body.
    pub body: Bytes,
}

impl Heard {
    /// Its body, read as JSON.
    ///
    /// # Errors
    ///
    /// If it is something else.
    pub fn json<T: DeserializeOwned>(&self) -> io::Result<T> {
        Ok(serde_json::from_slice(&self.body)?)
    }
}

/// Sends a request under a key. An error says nothing about whether it took effect.
///
/// # Errors
///
/// If there is no answer.
pub async fn post<T: Serialize + Sync>(
    to: SocketAddr,
    path: &str,
    key: &str,
    body: &T,
) -> io::Result<Heard> {
    let body = Bytes::from(serde_json::to_vec(body)?);
    let request = Request::post(format!("/{path}"))
        .header(HOST, to.to_string())
        .header(CONTENT_TYPE, "application/json")
        .header(KEY, key)
        .body(Full::new(body));
    let request = request.map_err(io::Error::other)?;
    let answer = timeout(ANSWER_WITHIN, exchange(to, request)).await;
    answer.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn exchange(to: SocketAddr, request: Request<Full<Bytes>>) -> io::Result<Heard> {
    let stream = TcpStream::connect(to).await?;
    let (mut sender, connection) =
        handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let replayed = parts.headers.contains_key(REPLAYED);
        Ok(Heard { status: parts.status, replayed, body })
    };
    let driver = async {
        // How it ended is heard by the exchange.
        let _ = connection.await;
        std::future::pending::<io::Result<Heard>>().await
    };
    tokio::select! {
        answer = answer => answer,
        never = driver => never,
    }
}
