//! One connection to an upstream.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::LazyTimer;
use super::UpstreamAddress;
use super::body::SendBody;
use super::pool::Slot;
use super::settings::MAX_RESPONSE_HEADERS;
use super::stream::{Stream, Watch};

type Http = http1::Connection<TokioIo<Stream>, SendBody>;

/// A connection, with everything its exchanges need: it is driven by whoever holds it.
pub(super) struct Connection {
    sender: http1::SendRequest<SendBody>,
    // Nothing once it was closed.
    http: Option<Http>,
    ended: bool,
    timer: LazyTimer,
    watch: Arc<Watch>,
    was_used: bool,
    // For how long the upstream said that it keeps it open.
    announced: Option<Duration>,
    usable_until: Instant,
    slot: Slot,
}

impl Connection {
    /// Lets it read and write what it can; `cx` is woken when there is more to do.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(http) = self.http.as_mut().filter(|_| !self.ended) {
            self.ended = Pin::new(http).poll(cx).is_ready();
        }
    }

    /// The same, leaving the socket open if the upstream switches to another protocol.
    pub(super) fn drive_towards_upgrade(&mut self, cx: &mut Context<'_>) {
        if let Some(http) = self.http.as_mut().filter(|_| !self.ended) {
            self.ended = http.poll_without_shutdown(cx).is_ready();
        }
    }

    /// Gives up what is left of it. A request that waits in it comes back, unsent; without this it
    /// would wait there for ever once the connection has ended.
    pub(super) fn close(&mut self) {
        self.ended = true;
        self.http = None;
    }

    /// An exchange begins: whether the upstream has closed it is asked before anything is written.
    pub(super) fn begin(&mut self) {
        self.watch.begin(std::mem::replace(&mut self.was_used, true));
    }

    /// Whether anything of the exchange under way may have left this process.
    pub(super) fn wrote(&self) -> bool {
        self.watch.wrote()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn sender(&mut self) -> &mut http1::SendRequest<SendBody> {
        &mut self.sender
    }

    pub(super) fn timer(&mut self) -> &mut LazyTimer {
        &mut self.timer
    }

    /// Whether the last exchange ended so cleanly that another one can follow.
    pub(super) fn is_reusable(&self) -> bool {
        !self.ended && self.sender.is_ready()
    }

    /// The upstream has said for how long it keeps the connection open while nothing is asked.
    pub(super) fn announce(&mut self, kept: Option<Duration>) {
        self.announced = kept.or(self.announced);
    }

    /// Nobody uses it from now on: it may be used again for so long, or for as long as the
    /// upstream keeps it open if that is shorter.
    pub(super) fn rest(&mut self, idle_timeout: Duration) {
        let kept = self.announced.map_or(idle_timeout, |kept| kept.min(idle_timeout));
        self.usable_until = Instant::now() + kept;
    }

    pub(super) fn is_fresh_at(&self, now: Instant) -> bool {
        now < self.usable_until
    }

    /// Takes the socket for another protocol, with what was read of that already.
    pub(super) fn into_stream(self) -> Option<(Stream, Bytes, Slot)> {
        let parts = self.http?.into_parts();
        Some((parts.io.into_inner(), parts.read_buf, self.slot))
    }
}

/// How connections to one upstream are made.
pub(super) struct Connector {
    pub(super) address: UpstreamAddress,
    pub(super) tls: Option<TlsConnector>,
    pub(super) patience: Duration,
}

impl Connector {
    /// Makes one. On failure not a byte of any request was sent.
    pub(super) async fn connect(&self, slot: Slot) -> Result<Box<Connection>, &'static str> {
        let reached = match timeout(self.patience, self.reach()).await {
            Ok(reached) => reached,
            Err(_) => Err(("connecting to the upstream took too long", None)),
        };
        let stream = reached.map_err(|(what, why)| {
            tracing::debug!(upstream = %self.address, why = why.map(tracing::field::display), what);
            what
        })?;
        let watch = stream.watch();
        let mut http = http1::Builder::new();
        http.max_headers(MAX_RESPONSE_HEADERS);
        let handshake = http.handshake(TokioIo::new(stream)).await;
        let (sender, http) = handshake.map_err(|_| "the upstream's connection failed")?;
        Ok(Box::new(Connection {
            sender,
            http: Some(http),
            ended: false,
            timer: LazyTimer::new(),
            watch,
            was_used: false,
            announced: None,
            usable_until: Instant::now(),
            slot,
        }))
    }

    async fn reach(&self) -> Result<Stream, (&'static str, Option<io::Error>)> {
        let host = (self.address.host(), self.address.port());
        let found = tokio::net::lookup_host(host).await;
        let found = found.map_err(|why| ("the upstream's name was not found", Some(why)))?;
        let tcp = first_of(found).await;
        let tcp = tcp.map_err(|why| ("the upstream refused the connection", Some(why)))?;
        let Some(tls) = &self.tls else { return Ok(Stream::plain(tcp)) };
        let name = ServerName::try_from(self.address.host().to_owned());
        let name = name.map_err(|_| ("the upstream's name is no name for TLS", None))?;
        match tls.connect(name, tcp).await {
            Ok(stream) => Ok(Stream::tls(stream)),
            Err(why) => Err(("the TLS handshake with the upstream failed", Some(why))),
        }
    }
}

async fn first_of(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(why) => last = why,
        }
    }
    Err(last)
}
