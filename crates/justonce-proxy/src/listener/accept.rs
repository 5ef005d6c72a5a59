//! Accepts connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use justonce_net::SocketAddress;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::either::Either;

use super::accepted::{Accepted, Peer};
use super::connection::ConnectionServer;
use super::handle::{ListenerHandle, Shared};
use super::refused::{Observer, RefusalObserver};
use super::service::ListenerService;
use super::settings::{ACCEPT_PAUSE, ListenerSettings};
use super::socket::ListenSocket;
use super::socket_file::SocketFile;
use super::tls::ServerTls;
use crate::client::ClientScheme;
use crate::forwarded::TrustedProxies;

/// The shortest pause between two log lines about failures to accept.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// A socket that accepts client connections.
#[derive(Debug)]
pub struct Listener {
    socket: Either<TcpListener, UnixListener>,
    address: SocketAddress,
    file: Option<SocketFile>,
    settings: ListenerSettings,
    tls: Option<ServerTls>,
    proxies: TrustedProxies,
    observer: Observer,
    handle: ListenerHandle,
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
        // Only files have a mode.
        Self::on(ListenSocket::bind(&address.into(), 0)?, settings)
    }

    /// Listens on a socket.
    ///
    /// # Errors
    ///
    /// If the runtime cannot watch it.
    pub fn on(socket: ListenSocket, settings: ListenerSettings) -> io::Result<Self> {
        let ListenSocket { socket, address, file } = socket;
        let socket = match address {
            SocketAddress::Tcp(_) => Either::Left(TcpListener::from_std(socket.into())?),
            SocketAddress::Unix(_) => Either::Right(UnixListener::from_std(socket.into())?),
        };
        let (proxies, tls) = (TrustedProxies::default(), None);
        let handle = ListenerHandle::new(settings.max_connections, file.clone());
        let observer = Observer::default();
        Ok(Self { socket, address, file, settings, tls, proxies, observer, handle })
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

    /// Tells an observer of requests that no service sees.
    #[must_use]
    pub fn with_refusal_observer(mut self, observer: impl RefusalObserver) -> Self {
        self.observer = Observer(Some(Arc::new(observer)));
        self
    }

    /// The IP address that it listens on.
    ///
    /// # Errors
    ///
    /// If it listens on a Unix socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let none = || io::Error::new(io::ErrorKind::Unsupported, "a Unix socket has no IP address");
        self.address.ip().ok_or_else(none)
    }

    /// Where it listens, with the port that the system chose.
    #[must_use]
    pub const fn address(&self) -> &SocketAddress {
        &self.address
    }

    /// Shows what it does while it is served, and lets another process take the socket over.
    #[must_use]
    pub fn handle(&self) -> ListenerHandle {
        self.handle.clone()
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
        let shared = Arc::clone(&self.handle.0);
        let proxies = std::mem::take(&mut self.proxies);
        let (tracker, observer) = (Arc::clone(&shared.tracker), std::mem::take(&mut self.observer));
        let server = ConnectionServer::new(self.settings, proxies, tracker, observer);
        let server = Arc::new(server);
        tokio::select! {
            () = shutdown => {}
            () = self.accept(&server, &shared, service) => {}
        }
        // While the socket is open, no other file can be taken for its own.
        let is_passed_on = shared.is_passed_on.load(Ordering::Acquire);
        self.file.take().iter().filter(|_| !is_passed_on).for_each(SocketFile::remove);
        drop(self.socket);
        let tracker = &shared.tracker;
        tracker.drain();
        let mut counts = ConnectionCounts {
            accepted: tracker.totals.accepted.load(Ordering::Relaxed),
            refused: tracker.totals.over_limit.load(Ordering::Relaxed),
            dropped: 0,
        };
        if timeout(grace, tracker.closed()).await.is_err() {
            counts.dropped = tracker.count();
            tracker.abort();
        }
        counts
    }

    async fn accept<S: ListenerService>(
        &self,
        server: &Arc<ConnectionServer>,
        shared: &Shared,
        service: impl Fn() -> S,
    ) {
        let mut logged: Option<Instant> = None;
        loop {
            shared.until_accepting().await;
            let accepted = match &self.socket {
                Either::Left(socket) => tokio::select! {
                    biased;
                    () = shared.until_stopped() => continue,
                    accepted = socket.accept() => accepted.map(|(stream, peer)| {
                        // Without it, responses wait for more to send: slower, and still right.
                        let _ = stream.set_nodelay(true);
                        self.begin(server, stream, Peer::Tcp(peer), &service);
                    }),
                },
                Either::Right(socket) => tokio::select! {
                    biased;
                    () = shared.until_stopped() => continue,
                    accepted = socket.accept() => accepted.map(|(stream, _)| {
                        self.begin(server, stream, Peer::Unix, &service);
                    }),
                },
            };
            match accepted {
                Ok(()) => {}
                // The client has gone already.
                Err(error) if is_of_one_connection(&error) => {}
                // The system cannot open more connections until others are closed.
                Err(error) => {
                    if logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
                        tracing::error!(%error, "no connection can be accepted");
                        logged = Some(Instant::now());
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves a connection, unless too many are open.
    fn begin<T, S>(
        &self,
        server: &Arc<ConnectionServer>,
        stream: T,
        peer: Peer,
        service: impl Fn() -> S,
    ) where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: ListenerService,
    {
        let tracker = &server.tracker;
        tracker.totals.accepted.fetch_add(1, Ordering::Relaxed);
        let Some(guard) = tracker.open() else {
            tracker.totals.over_limit.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let (server, asker) = (Arc::clone(server), tracker.asker());
        let accepted = Accepted { server, stream, peer, service: service(), guard, asker };
        // Tasks of their own kinds: a cleartext connection should not take the memory that TLS and
        // the PROXY protocol need.
        match (self.tls.clone(), accepted.server.proxies.proxy_protocol) {
            (None, false) => {
                let from = accepted.direct(ClientScheme::Http);
                tokio::spawn(accepted.serve(from));
            }
            (Some(tls), false) => {
                let from = accepted.direct(ClientScheme::Https);
                tokio::spawn(accepted.serve_tls(tls, from));
            }
            (tls, true) => {
                tokio::spawn(accepted.serve_proxied(tls));
            }
        }
    }
}

/// Whether accepting failed for one connection only.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | ConnectionRefused)
}
