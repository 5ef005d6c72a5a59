//! Real sockets: a server, and a caller that writes its bytes by hand.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Serves an application on a port of its own, HTTP/1.1 and HTTP/2.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A connection whose bytes a test writes and reads itself.
pub(crate) struct Caller {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Caller {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the server listens");
        Self { stream, read: Vec::new() }
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    /// Says that nothing more will be written.
    pub(crate) async fn finish(&mut self) {
        self.stream.shutdown().await.expect("an open connection");
    }

    /// Reads until this text has come, and returns everything up to its end.
    pub(crate) async fn read_until(&mut self, text: &str) -> String {
        loop {
            let found = self.read.windows(text.len()).position(|part| part == text.as_bytes());
            if let Some(at) = found {
                let rest = self.read.split_off(at + text.len());
                let read = std::mem::replace(&mut self.read, rest);
                return String::from_utf8_lossy(&read).into_owned();
            }
            let count = self.stream.read_buf(&mut self.read).await.expect("the server writes");
            let read = String::from_utf8_lossy(&self.read);
            assert_ne!(count, 0, "the connection ended before {text:?} came: {read:?}");
        }
    }

    /// Reads until the server closes the connection, cleanly or not.
    pub(crate) async fn read_to_end(&mut self) -> String {
        // A connection that was reset has said all it will.
        let _ = self.stream.read_to_end(&mut self.read).await;
        String::from_utf8_lossy(&self.read).into_owned()
    }
}

/// Sends one request over HTTP/1.1, on a connection of its own, and reads the answer.
pub(crate) async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut caller = Caller::to(address).await;
    caller.write(request).await;
    caller.read_to_end().await
}

/// Sends one request over HTTP/2, on a connection of its own.
pub(crate) async fn http2(address: SocketAddr, request: Request<Body>) -> Response<Incoming> {
    let stream = TcpStream::connect(address).await.expect("the server listens");
    let io = TokioIo::new(stream);
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), io).await.expect("the server speaks HTTP/2");
    tokio::spawn(connection);
    sender.send_request(request).await.expect("an answer")
}
