//! One request on a connection of its own, and the ways in which a client disconnects.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderName};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use justonce_testkit::history::Reply;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::answer::Answer;

/// Where payments are made.
pub(crate) const PAYMENTS: &str = "/payments";
/// The header with the key.
pub(crate) const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const PREFER: HeaderName = HeaderName::from_static("prefer");
/// Longer than the lease: a waiter learns the state after a gateway was killed.
const PREFERRED_WAIT: HeaderValue = HeaderValue::from_static("wait=3");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// After this no answer is expected any more.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PaymentRequest {
    pub(crate) key: String,
    pub(crate) body: Bytes,
    pub(crate) prefers_to_wait: bool,
}

/// When the client disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disconnect {
    /// It waits for the whole answer.
    Never,
    /// In the middle of its own request.
    InRequest,
    /// After it has sent the request and waited so long.
    After(Duration),
    /// In the middle of the answer.
    InAnswer,
}

/// What came of it, as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// There was no connection: nothing was sent.
    Refused,
    /// Only a part of the request was sent, on purpose.
    Cut,
    /// The request was sent, and the client left before it had the answer, on purpose.
    Left,
    /// The request was sent, and the connection broke.
    Lost,
    /// The request was sent and answered.
    Answered(Answer),
}

impl Sent {
    /// The end of the request in a history.
    pub(crate) fn reply(&self) -> Reply {
        match self {
            Self::Refused => Reply::Unavailable,
            Self::Cut | Self::Left | Self::Lost => Reply::Lost,
            Self::Answered(answer) => answer.reply(),
        }
    }
}

/// Sends a request. Dropping the future disconnects at once.
pub(crate) async fn send(to: SocketAddr, request: &PaymentRequest, disconnect: Disconnect) -> Sent {
    let Ok(stream) = TcpStream::connect(to).await else { return Sent::Refused };
    // A closed port of one's own machine can connect a socket to itself.
    if stream.local_addr().ok() == stream.peer_addr().ok() {
        return Sent::Refused;
    }
    match disconnect {
        Disconnect::InRequest => cut(stream, to, request).await,
        Disconnect::Never => answered(stream, to, request, false).await,
        Disconnect::InAnswer => answered(stream, to, request, true).await,
        Disconnect::After(time) => {
            let exchange = answered(stream, to, request, false);
            timeout(time, exchange).await.unwrap_or(Sent::Left)
        }
    }
}

/// Sends the head and half of the body.
async fn cut(mut stream: TcpStream, to: SocketAddr, request: &PaymentRequest) -> Sent {
    let PaymentRequest { key, body, .. } = request;
    let head = format!(
        "POST {PAYMENTS} HTTP/1.1\r\nhost: {to}\r\nidempotency-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let half = body.get(..body.len() / 2).unwrap_or_default();
    let bytes = [head.as_bytes(), half].concat();
    match stream.write_all(&bytes).await {
        Ok(()) => Sent::Cut,
        Err(_) => Sent::Refused,
    }
}

async fn answered(
    stream: TcpStream,
    to: SocketAddr,
    request: &PaymentRequest,
    leaves: bool,
) -> Sent {
    let Ok((sender, connection)) = http1::handshake(TokioIo::new(stream)).await else {
        return Sent::Refused;
    };
    let driver = async {
        // The exchange ends with the connection, by an answer or an error.
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    let exchange = timeout(ANSWER_WITHIN, exchange(sender, to, request, leaves));
    tokio::select! {
        biased;
        sent = exchange => sent.unwrap_or(Sent::Lost),
        () = driver => Sent::Lost,
    }
}

async fn exchange(
    mut sender: SendRequest<Full<Bytes>>,
    to: SocketAddr,
    request: &PaymentRequest,
    leaves: bool,
) -> Sent {
    let Some(request) = http_request(to, request) else { return Sent::Refused };
    let Ok(response) = sender.send_request(request).await else { return Sent::Lost };
    if leaves { Sent::Left } else { read(response).await }
}

async fn read(response: Response<Incoming>) -> Sent {
    let (parts, body) = response.into_parts();
    match body.collect().await {
        Ok(body) => Sent::Answered(Answer::read(parts.status, &parts.headers, &body.to_bytes())),
        Err(_) => Sent::Lost,
    }
}

/// Nothing for a key that no header can hold, and ours are none of those.
fn http_request(to: SocketAddr, request: &PaymentRequest) -> Option<Request<Full<Bytes>>> {
    let builder = Request::builder()
        .method(Method::POST)
        .uri(PAYMENTS)
        .header(HOST, to.to_string())
        .header(CONTENT_TYPE, JSON)
        .header(KEY, &request.key);
    let builder =
        if request.prefers_to_wait { builder.header(PREFER, PREFERRED_WAIT) } else { builder };
    builder.body(Full::new(request.body.clone())).ok()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    fn request() -> PaymentRequest {
        let body = Bytes::from_static(b"{\"amount\":1,\"to\":\"alice\"}");
        PaymentRequest { key: "a".to_owned(), body, prefers_to_wait: true }
    }

    /// What a server hears that answers with these bytes as soon as it hears anything.
    async fn heard(disconnect: Disconnect, answer: &'static [u8]) -> (Sent, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = vec![0; 4096];
            let read = stream.read(&mut heard).await.unwrap();
            heard.truncate(read);
            stream.write_all(answer).await.unwrap();
            let _ = stream.read_to_end(&mut heard).await;
            String::from_utf8(heard).unwrap()
        });
        let sent = send(to, &request(), disconnect).await;
        (sent, server.await.unwrap())
    }

    const CREATED: &[u8] = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}";
    const HALF: &[u8] = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{";

    #[tokio::test]
    async fn a_patient_client_has_its_answer() {
        let (sent, heard) = heard(Disconnect::Never, CREATED).await;
        assert!(matches!(sent, Sent::Answered(Answer::Acknowledged { replayed: false, .. })));
        assert!(heard.contains("idempotency-key: a\r\n"), "{heard}");
        assert!(heard.contains("prefer: wait=3\r\n"), "{heard}");
        assert!(heard.ends_with("\"alice\"}"), "{heard}");
    }

    #[tokio::test]
    async fn a_cut_request_is_not_whole() {
        let (sent, heard) = heard(Disconnect::InRequest, b"").await;
        assert_eq!(sent, Sent::Cut);
        assert!(heard.contains("content-length: 25\r\n"), "{heard}");
        assert!(!heard.ends_with('}'), "{heard}");
    }

    #[tokio::test]
    async fn who_leaves_has_no_answer() {
        let (sent, heard) = heard(Disconnect::InAnswer, HALF).await;
        assert_eq!(sent, Sent::Left);
        assert!(heard.ends_with("\"alice\"}"), "{heard}");
        let soon = Duration::from_millis(1);
        assert_eq!(self::heard(Disconnect::After(soon), HALF).await.0, Sent::Left);
    }

    #[tokio::test]
    async fn nobody_there_means_not_sent() {
        // Bound, but not listening: nobody else can take the port meanwhile.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = socket.local_addr().unwrap();
        assert_eq!(send(to, &request(), Disconnect::Never).await, Sent::Refused);
    }
}
