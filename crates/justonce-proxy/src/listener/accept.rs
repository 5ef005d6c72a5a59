//! Accepts connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use super::certificate;
use super::connection::ConnectionServer;
use super::proxy_protocol::{self, Source};
use super::service::ListenerService;
use super::settings::{ACCEPT_PAUSE, BACKLOG, ListenerSettings};
use super::tls::ServerTls;
use super::tracker::{ConnectionGuard, Stage};
use crate::client::{Client, ClientScheme};
use crate::forwarded::TrustedProxies;
use crate::metrics::Handshake;

/// The shortest pause between two log lines about failures to accept.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// A socket that accepts client connections.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    settings: ListenerSettings,
    tls: Option<ServerTls>,
    proxies: TrustedProxies,
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
        Ok(Self { listener, settings, tls: None, proxies: TrustedProxies::default() })
    }

    /// Accepts TLS only.
    #[must_use]
    pub fn with_tls(mut self, tls: ServerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Trusts these proxies in front to name the client.
    #[must_use]
    pub fn with_proxies(mut self, proxies: TrustedProxies) -> Self {
        self.proxies = proxies;
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
        mut self,
        service: impl Fn() -> S,
        shutdown: impl Future<Output = ()>,
        grace: Duration,
    ) -> ConnectionCounts {
        let proxies = std::mem::take(&mut self.proxies);
        let server = ConnectionServer::new(self.settings, proxies);
        let server = Arc::new(server);
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
            let (stream, peer) = match self.listener.accept().await {
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
            let accepted =
                Accepted { server: Arc::clone(server), stream, peer, service: service(), guard };
            // Tasks of their own kinds: a cleartext connection should not take the memory that TLS
            // and the PROXY protocol need.
            match (self.tls.clone(), server.proxies.proxy_protocol) {
                (None, false) => {
                    let client = Client::new(peer, ClientScheme::Http);
                    tokio::spawn(accepted.serve(client));
                }
                (Some(tls), false) => {
                    let client = Client::new(peer, ClientScheme::Https);
                    tokio::spawn(accepted.serve_tls(tls, client));
                }
                (tls, true) => {
                    tokio::spawn(accepted.serve_proxied(tls));
                }
            }
        }
    }
}

/// A connection that was accepted.
struct Accepted<S> {
    server: Arc<ConnectionServer>,
    stream: TcpStream,
    peer: SocketAddr,
    service: S,
    guard: ConnectionGuard,
}

impl<S: ListenerService> Accepted<S> {
    async fn serve(self, client: Client) {
        let Self { server, stream, service, guard, .. } = self;
        server.serve(stream, None, (client, None), service, guard).await;
    }

    async fn serve_tls(self, tls: ServerTls, client: Client) {
        let Self { server, stream, service, guard, .. } = self;
        let handshake = timeout(server.settings.handshake_timeout, tls.acceptor().accept(stream));
        let stream = match handshake.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tls.count(Handshake::of_error(&error));
                tracing::debug!(%error, "a TLS handshake failed");
                return;
            }
            Err(_) => return tls.count(Handshake::Timeout),
        };
        tls.count(Handshake::Done);
        let session = stream.get_ref().1;
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        let certificate = certificate::client(session.peer_certificates());
        server.serve(stream, Some(is_http2), (client, certificate), service, guard).await;
    }

    /// Serves a connection that must come from a trusted proxy and say whose it is.
    async fn serve_proxied(mut self, tls: Option<ServerTls>) {
        let source = match self.source().await {
            Ok(source) => source,
            Err(why) => {
                if let Some(left_out) = self.server.refusals.admit(Instant::now()) {
                    let peer = self.peer.ip();
                    let message = "a connection was closed: PROXY protocol";
                    tracing::warn!(%peer, %why, left_out, "{message}");
                }
                return;
            }
        };
        let of_us = if tls.is_some() { ClientScheme::Https } else { ClientScheme::Http };
        let client = match source {
            Source::Client(address, Some(true)) => Client::new(address, ClientScheme::Https),
            Source::Client(address, _) => Client::new(address, of_us),
            Source::Proxy => Client::new(self.peer, of_us),
            Source::Unknown => Client::hidden_behind(self.peer, of_us),
        };
        match tls {
            None => self.serve(client).await,
            Some(tls) => self.serve_tls(tls, client).await,
        }
    }

    /// Who is behind the proxy that has connected.
    async fn source(&mut self) -> Result<Source, String> {
        if !self.server.proxies.trusts(self.peer.ip()) {
            return Err("it comes from no trusted proxy".to_owned());
        }
        let tracker = &self.server.tracker;
        let limit = self.server.settings.header_timeout;
        let read = timeout(limit, proxy_protocol::read(&mut self.stream));
        // It hears of changes from here on, polled or not.
        let changed = tracker.changed.notified();
        if tracker.stage() != Stage::Running {
            return Err(STOPPING.to_owned());
        }
        tokio::select! {
            read = read => match read {
                Ok(read) => read.map_err(|error| error.to_string()),
                Err(_) => Err("its header did not come in time".to_owned()),
            },
            () = changed => Err(STOPPING.to_owned()),
        }
    }
}

/// Why a connection is closed that has not said whose it is: there is no request to finish.
const STOPPING: &str = "the gateway stops";

/// Whether accepting failed for one connection only.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | ConnectionRefused)
}
