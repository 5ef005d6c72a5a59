//! Upstreams that do exactly what they are told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use justonce_proxy::{BreakerSettings, Proxy, ProxySettings, ProxyTimeouts, UpstreamAddress};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;

use super::{content_length, read_head};

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// An upstream that handles each connection as told.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Upstream {
    pub(crate) async fn start<H, F>(handle: H) -> Self
    where
        H: Fn(TcpStream) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, handle)
    }

    pub(crate) fn on<H, F>(listener: TcpListener, handle: H) -> Self
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
    pub(crate) async fn fine() -> Self {
        Self::start(answer_all).await
    }

    /// One that answers nothing by itself, and the connections that requests have come on.
    pub(crate) async fn told() -> (Self, mpsc::Receiver<TcpStream>) {
        let (reached, seen) = mpsc::channel(1);
        let upstream = Self::start(move |mut stream| {
            let reached = reached.clone();
            async move {
                read_head(&mut stream).await;
                reached.send(stream).await.unwrap();
            }
        })
        .await;
        (upstream, seen)
    }

    pub(crate) fn url(&self) -> UpstreamAddress {
        url(self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

pub(crate) fn url(address: SocketAddr) -> UpstreamAddress {
    UpstreamAddress::parse(&format!("http://{address}")).unwrap()
}

pub(crate) fn settings(address: SocketAddr) -> ProxySettings {
    proxy_settings([url(address)])
}

/// The settings of these tests, unless one says otherwise.
pub(crate) fn proxy_settings(
    upstreams: impl IntoIterator<Item = UpstreamAddress>,
) -> ProxySettings {
    let timeouts = ProxyTimeouts {
        connect: Duration::from_secs(2),
        response: Duration::from_secs(30),
        idle: Duration::from_secs(4),
    };
    let breaker = BreakerSettings {
        window: Duration::from_secs(10),
        min_requests: 20,
        failure_percent: 50,
        open_for: Duration::from_secs(5),
    };
    ProxySettings { breaker: Some(breaker), ..ProxySettings::new(upstreams, timeouts) }
}

pub(crate) fn proxy(address: SocketAddr) -> Proxy {
    Proxy::new(settings(address)).unwrap()
}

/// An address where nobody listens, and that nobody else gets.
pub(crate) struct Dead {
    pub(crate) address: SocketAddr,
    socket: TcpSocket,
}

impl Dead {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self { address: socket.local_addr().unwrap(), socket }
    }

    /// Somebody listens there now.
    pub(crate) fn listen(self) -> TcpListener {
        self.socket.listen(64).unwrap()
    }
}

pub(crate) async fn answer_all(mut stream: TcpStream) {
    while let Some((head, rest)) = read_head(&mut stream).await {
        let length = content_length(&head);
        let mut body = vec![0; length - rest.len()];
        stream.read_exact(&mut body).await.unwrap();
        stream.write_all(OK.as_bytes()).await.unwrap();
    }
}
