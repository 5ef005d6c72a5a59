//! Upstreams that do exactly what they are told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use justonce_server::proxy::{Proxy, ProxySettings, UpstreamAddress};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::{content_length, read_head};

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
