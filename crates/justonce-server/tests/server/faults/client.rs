//! A client that keeps its connection and writes down what it asks and hears.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use justonce_testkit::history::{Recorder, Reply};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a client waits for a reply.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client of one gateway.
pub(crate) struct Client {
    gateway: SocketAddr,
    recorder: Recorder,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// What was heard.
pub(crate) struct Heard {
    pub(crate) reply: Reply,
    pub(crate) headers: HeaderMap,
}

impl Client {
    pub(crate) fn new(gateway: SocketAddr, recorder: Recorder) -> Self {
        Self { gateway, recorder, connection: None }
    }

    /// Asks for an operation, and waits so many seconds if it is running.
    pub(crate) async fn ask(&mut self, key: &str, wait: u32) -> Heard {
        let request = self.recorder.asked(key);
        let heard = match timeout(PATIENCE, self.exchange(key, wait)).await {
            Ok(Some(heard)) => heard,
            Ok(None) | Err(_) => {
                self.connection = None;
                Heard { reply: Reply::Lost, headers: HeaderMap::new() }
            }
        };
        self.recorder.replied(request, heard.reply.clone());
        heard
    }

    async fn exchange(&mut self, key: &str, wait: u32) -> Option<Heard> {
        let connection = self.connected().await?;
        let mut request = Request::post("/payments")
            .header("host", "test")
            .header("idempotency-key", key)
            .header("content-type", "application/json");
        if wait > 0 {
            request = request.header("prefer", format!("wait={wait}"));
        }
        let request = request.body(Full::from(r#"{"amount":5}"#)).unwrap();
        let response = connection.send_request(request).await.ok()?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        let reply = read(parts.status.as_u16(), &parts.headers, &body);
        Some(Heard { reply, headers: parts.headers })
    }

    async fn connected(&mut self) -> Option<&mut SendRequest<Full<Bytes>>> {
        let usable = match &mut self.connection {
            Some(connection) => connection.ready().await.is_ok(),
            None => false,
        };
        if !usable {
            let stream = TcpStream::connect(self.gateway).await.ok()?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
            tokio::spawn(connection);
            self.connection = Some(sender);
        }
        self.connection.as_mut()
    }
}

fn read(status: u16, headers: &HeaderMap, body: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(body).into_owned();
    if status == 201 {
        let replayed = headers.get("idempotent-replayed").is_some_and(|value| value == "true");
        return Reply::Acknowledged { answer: text, replayed };
    }
    let problem: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let again = headers.contains_key("retry-after");
    match (status, problem["code"].as_str().unwrap_or_default()) {
        (409, "in-flight") if again => Reply::InFlight,
        (409, "outcome-unknown") => Reply::Unknown,
        (409, "superseded") => Reply::Superseded,
        (503, "store-unavailable") if again => Reply::Unavailable,
        _ => Reply::Surprise(format!("{status} {text}")),
    }
}
