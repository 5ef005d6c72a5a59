//! Accepts connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use super::connection::ConnectionServer;
use super::service::ListenerService;
use super::settings::{ACCEPT_PAUSE, BACKLOG, ListenerSettings};
use super::tls::ServerTls;
use super::tracker::ConnectionGuard;
use crate::client::{Client, ClientScheme};

/// The shortest pause between two log lines about failures to accept.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// A socket that accepts client connections.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    settings: ListenerSettings,
    tls: Option<ServerTls>,
}

/// What became of the connections of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections closed at once because too many were open.
    pub refused: u64,
    /// Connections still open when the grace period was over.
    pub dropped: usize,
}

impl Listener {
    /// Listens on an address; port 0 is any free one.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub fn bind(address: SocketAddr, settings: ListenerSettings) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            // `[::]` also accepts IPv4.
            socket.set_only_v6(false)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from_std(socket.into())?;
        Ok(Self { listener, settings, tls: None })
    }

    /// Accepts TLS only.
    #[must_use]
    pub fn with_tls(mut self, tls: ServerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The address it listens on.
    ///
    /// # Errors
    ///
    /// If the system does not tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` completes. Then no connection is accepted any more, the open ones
    /// finish the requests under way, and those that take longer than `grace` are closed.
    ///
    /// `service` is called once per connection.
    pub async fn serve<S: ListenerService>(
        self,
        service: impl Fn() -> S,
        shutdown: impl Future<Output = ()>,
        grace: Duration,
    ) -> ConnectionCounts {
        let server = Arc::new(ConnectionServer::new(self.settings));
        let mut counts = ConnectionCounts::default();
        tokio::select! {
            () = shutdown => {}
            () = self.accept(&server, service, &mut counts) => {}
        }
        drop(self.listener);
        server.tracker.drain();
        if timeout(grace, server.tracker.closed()).await.is_err() {
            counts.dropped = server.tracker.count();
            server.tracker.abort();
        }
        counts
    }

    async fn accept<S: ListenerService>(
        &self,
        server: &Arc<ConnectionServer>,
        service: impl Fn() -> S,
        counts: &mut ConnectionCounts,
    ) {
        let mut logged: Option<Instant> = None;
        loop {
            let (stream, address) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                // The client has gone already.
                Err(error) if is_of_one_connection(&error) => continue,
                // The system cannot open more connections until others are closed.
                Err(error) => {
                    if logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
                        tracing::error!(%error, "no connection can be accepted");
                        logged = Some(Instant::now());
                    }
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            counts.accepted += 1;
            let Some(guard) = server.tracker.open() else {
                counts.refused += 1;
                continue;
            };
            if stream.set_nodelay(true).is_err() {
                continue;
            }
            let (server, service) = (Arc::clone(server), service());
            // Two tasks: a cleartext connection should not take the memory that TLS needs.
            match self.tls.clone() {
                None => {
                    let client = Client::new(address, ClientScheme::Http);
                    tokio::spawn(async move {
                        server.serve(stream, None, client, service, guard).await;
                    });
                }
                Some(tls) => {
                    let client = Client::new(address, ClientScheme::Https);
                    tokio::spawn(serve_tls(server, tls, stream, client, service, guard));
                }
            }
        }
    }
}

async fn serve_tls<S: ListenerService>(
    server: Arc<ConnectionServer>,
    tls: ServerTls,
    stream: TcpStream,
    client: Client,
    service: S,
    guard: ConnectionGuard,
) {
    let handshake = timeout(server.settings.handshake_timeout, tls.acceptor().accept(stream));
    let stream = match handshake.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    server.serve(stream, Some(is_http2), client, service, guard).await;
}

/// Whether accepting failed for one connection only.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | ConnectionRefused)
}
