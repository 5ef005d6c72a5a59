//! What the tests of the two sides share: upstreams that do exactly what they are told, a
//! gateway without rules, and clients that speak in bytes.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests: each test uses some of them, and a failure here is a failed test"
)]

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use justonce_server::listen::{ListenLimits, Listener, Served};
use justonce_server::proxy::{Proxy, ProxySettings, UpstreamAddress};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

pub const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// An upstream that handles each connection as told.
pub struct Upstream {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Upstream {
    pub async fn start<H, F>(handle: H) -> Self
    where
        H: Fn(TcpStream) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, handle)
    }

    pub fn on<H, F>(listener: TcpListener, handle: H) -> Self
    where
        H: Fn(TcpStream) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(handle(stream));
            }
        });
        Self { address, connections }
    }

    /// One that answers everything with `ok`, on as many connections as it gets.
    pub async fn fine() -> Self {
        Self::start(answer_all).await
    }

    pub fn url(&self) -> UpstreamAddress {
        url(self.address)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

pub fn url(address: SocketAddr) -> UpstreamAddress {
    UpstreamAddress::parse(&format!("http://{address}")).unwrap()
}

pub fn settings(address: SocketAddr) -> ProxySettings {
    ProxySettings::to([url(address)])
}

pub fn proxy(address: SocketAddr) -> Proxy {
    Proxy::new(settings(address)).unwrap()
}

/// An address where nobody listens, and that nobody else gets.
pub struct Dead {
    pub address: SocketAddr,
    socket: TcpSocket,
}

impl Dead {
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self { address: socket.local_addr().unwrap(), socket }
    }

    /// Somebody listens there now.
    pub fn listen(self) -> TcpListener {
        self.socket.listen(64).unwrap()
    }
}

pub async fn answer_all(mut stream: TcpStream) {
    while let Some((head, rest)) = read_head(&mut stream).await {
        let length = content_length(&head);
        let mut body = vec![0; length - rest.len()];
        stream.read_exact(&mut body).await.unwrap();
        stream.write_all(OK.as_bytes()).await.unwrap();
    }
}

pub fn content_length(head: &str) -> usize {
    let line = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    line.map_or(0, |value| value.parse().unwrap())
}

/// A head in small letters, and what was read of the body; nothing at the end.
pub async fn read_head<T: AsyncRead + Unpin>(stream: &mut T) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(at + 4);
            return Some((String::from_utf8(bytes).unwrap().to_ascii_lowercase(), rest));
        }
        match stream.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// Reads one answer with a length: its head and its body.
pub async fn read_answer<T: AsyncRead + Unpin>(stream: &mut T) -> (String, String) {
    let (head, mut body) = read_head(stream).await.expect("an answer");
    let length = content_length(&head);
    while body.len() < length {
        assert_ne!(stream.read_buf(&mut body).await.unwrap(), 0, "cut off: {head}");
    }
    (head, String::from_utf8(body).unwrap())
}

/// Everything until the other side closes; a reset is a close too.
pub async fn read_rest<T: AsyncRead + Unpin>(stream: &mut T) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends bytes and reads all that comes back until the connection is closed.
pub async fn shout(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(bytes).await;
    read_rest(&mut stream).await
}

pub async fn say<T: AsyncWrite + Unpin>(stream: &mut T, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}

/// Lets the runtime hear of everything that has happened on sockets so far.
pub async fn settle() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for _ in 0..3 {
        let (here, there) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut here, (mut there, _)) = (here.unwrap(), there.unwrap());
        say(&mut here, "x").await;
        there.read_u8().await.unwrap();
    }
}

pub fn listener(limits: ListenLimits) -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap(), limits).unwrap()
}

/// A listener in front of a proxy, and nothing between them.
pub struct Gateway {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<Served>>,
}

impl Gateway {
    pub fn to(upstream: SocketAddr) -> Self {
        Self::start(settings(upstream), ListenLimits::default())
    }

    pub fn start(settings: ProxySettings, limits: ListenLimits) -> Self {
        Self::serve(settings, listener(limits), Duration::from_secs(60))
    }

    pub fn serve(settings: ProxySettings, listener: Listener, grace: Duration) -> Self {
        let address = listener.local_addr().unwrap();
        let proxy = Proxy::new(settings).unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let serving = listener.serve(move || proxy.clone(), shutdown, grace);
        Self { address, stop: Some(stop), task: Some(tokio::spawn(serving)) }
    }

    /// Begins to shut down.
    pub fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Waits for the end of the shutdown.
    pub async fn ended(mut self) -> Served {
        self.task.take().unwrap().await.unwrap()
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

/// A body that somebody else feeds.
pub struct Fed(mpsc::Receiver<io::Result<Bytes>>);

impl Fed {
    pub fn new() -> (mpsc::Sender<io::Result<Bytes>>, Self) {
        let (sender, receiver) = mpsc::channel(1);
        (sender, Self(receiver))
    }
}

impl Body for Fed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|fed| fed.map(|fed| fed.map(Frame::data)))
    }
}
