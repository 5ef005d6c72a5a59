//! One connection to an upstream, and how it is made.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;

use super::address::UpstreamAddress;
use super::request_body::RequestBody;
use super::settings::{MAX_RESPONSE_HEADERS, Protocol};
use super::stream::{Stream, StreamState};
use crate::timer::LazyTimer;

const REFUSED: &str = "the upstream refused the connection";
/// How long to wait before a Unix socket is tried again whose queue of connections is full.
const FULL_PAUSE: Duration = Duration::from_millis(5);

/// Counts a connection of an upstream until it is dropped.
pub(super) type ConnectionSlot = OwnedSemaphorePermit;

type Http = http1::Connection<TokioIo<Stream>, RequestBody>;

/// A connection, with everything that its exchanges need. The task that owns it drives it.
pub(super) struct Connection {
    sender: http1::SendRequest<RequestBody>,
    // Nothing after `close`.
    http: Option<Http>,
    ended: bool,
    timer: LazyTimer,
    state: Arc<StreamState>,
    was_used: bool,
    // The idle timeout that the upstream announced.
    announced: Option<Duration>,
    usable_until: Instant,
    slot: ConnectionSlot,
}

impl Connection {
    /// Reads and writes what is possible; `cx` is woken when there is more to do.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(http) = self.http.as_mut().filter(|_| !self.ended) {
            self.ended = Pin::new(http).poll(cx).is_ready();
        }
    }

    /// The same, but leaves the socket open if the upstream switches to another protocol.
    pub(super) fn drive_towards_upgrade(&mut self, cx: &mut Context<'_>) {
        if let Some(http) = self.http.as_mut().filter(|_| !self.ended) {
            self.ended = http.poll_without_shutdown(cx).is_ready();
        }
    }

    /// Drops the HTTP client. A request that waits in it comes back, unsent; otherwise it would
    /// wait for ever once the connection has ended.
    pub(super) fn close(&mut self) {
        self.ended = true;
        self.http = None;
    }

    /// An exchange begins: a closed connection is detected before anything is written.
    pub(super) fn begin(&mut self) {
        self.state.begin(std::mem::replace(&mut self.was_used, true));
    }

    /// Whether anything of the exchange under way may have left this process.
    pub(super) fn wrote(&self) -> bool {
        self.state.wrote()
    }

    /// Whether the upstream has ever sent anything on it.
    pub(super) fn has_read(&self) -> bool {
        self.state.read()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn sender(&mut self) -> &mut http1::SendRequest<RequestBody> {
        &mut self.sender
    }

    pub(super) fn timer(&mut self) -> &mut LazyTimer {
        &mut self.timer
    }

    /// Whether the last exchange ended so cleanly that another one can follow.
    pub(super) fn is_reusable(&self) -> bool {
        !self.ended && self.sender.is_ready()
    }

    /// The upstream announced its own idle timeout, or not.
    pub(super) fn announce(&mut self, idle_timeout: Option<Duration>) {
        self.announced = idle_timeout.or(self.announced);
    }

    /// It is idle from now on, and can be used again until this timeout or the announced one.
    pub(super) fn set_idle(&mut self, timeout: Duration) {
        let timeout = self.announced.map_or(timeout, |announced| announced.min(timeout));
        self.usable_until = Instant::now() + timeout;
    }

    pub(super) fn is_usable(&self, now: Instant) -> bool {
        now < self.usable_until
    }

    /// The socket for another protocol, and what was already read of that.
    pub(super) fn into_stream(self) -> Option<(Stream, Bytes, ConnectionSlot)> {
        let parts = self.http?.into_parts();
        Some((parts.io.into_inner(), parts.read_buf, self.slot))
    }
}

/// Makes connections to one upstream.
pub(super) struct Connector {
    pub(super) address: UpstreamAddress,
    pub(super) tls: Option<ConnectorTls>,
    pub(super) timeout: Duration,
    pub(super) protocol: Protocol,
}

/// How a connection gets TLS.
pub(super) struct ConnectorTls {
    pub(super) connector: TlsConnector,
    /// The name that is sent, and that the certificate must carry.
    pub(super) name: ServerName<'static>,
}

impl Connector {
    /// Connects. On failure not a byte of any request was sent.
    pub(super) async fn connect(
        &self,
        slot: ConnectionSlot,
    ) -> Result<Box<Connection>, &'static str> {
        let opened = match timeout(self.timeout, self.open()).await {
            Ok(opened) => opened,
            Err(_) => Err(("connecting to the upstream took too long", None)),
        };
        let stream = opened.map_err(|(what, why)| {
            tracing::debug!(upstream = %self.address, why = why.map(tracing::field::display), what);
            what
        })?;
        let state = stream.state();
        let mut http = http1::Builder::new();
        http.max_headers(MAX_RESPONSE_HEADERS);
        let handshake = http.handshake(TokioIo::new(stream)).await;
        let (sender, http) = handshake.map_err(|_| "the upstream's connection failed")?;
        Ok(Box::new(Connection {
            sender,
            http: Some(http),
            ended: false,
            timer: LazyTimer::new(),
            state,
            was_used: false,
            announced: None,
            usable_until: Instant::now(),
            slot,
        }))
    }

    /// Opens a socket, with TLS if the address says so.
    pub(super) async fn open(&self) -> Result<Stream, (&'static str, Option<io::Error>)> {
        if let Some(path) = self.address.unix_path() {
            let opened = connect_unix(path).await;
            let opened = opened.map_err(|why| (REFUSED, Some(why)))?;
            return Ok(Stream::unix(opened));
        }
        let host = (self.address.host(), self.address.port());
        let addresses = tokio::net::lookup_host(host).await;
        let addresses =
            addresses.map_err(|why| ("the upstream's name was not found", Some(why)))?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        let tcp = TcpStream::connect(&*addresses).await;
        let tcp = tcp.and_then(|tcp| tcp.set_nodelay(true).map(|()| tcp));
        let tcp = tcp.map_err(|why| (REFUSED, Some(why)))?;
        let Some(tls) = &self.tls else { return Ok(Stream::plain(tcp)) };
        let tls = tls.connector.connect(tls.name.clone(), tcp).await;
        let failed = "the TLS handshake with the upstream failed";
        let stream = tls.map_err(|why| (failed, Some(why)))?;
        let agreed = stream.get_ref().1.alpn_protocol();
        if self.protocol == Protocol::Http2 && agreed != Some(Protocol::Http2.alpn()) {
            return Err(("the upstream does not offer HTTP/2", None));
        }
        Ok(Stream::tls(stream))
    }
}

/// Connects to a Unix socket. Where TCP would wait until the other side accepts connections again,
/// the kernel says at once that it does not: it is asked again, for as long as the caller waits.
async fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(full) if full.kind() == io::ErrorKind::WouldBlock => sleep(FULL_PAUSE).await,
            connected => return connected,
        }
    }
}
