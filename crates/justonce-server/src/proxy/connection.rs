//! One connection to an upstream.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::LazyTimer;
use super::UpstreamAddress;
use super::body::SendBody;
use super::pool::Slot;

type Http = http1::Connection<TokioIo<Stream>, SendBody>;

/// A connection, with everything its exchanges need: it is driven by whoever holds it.
pub(super) struct Connection {
    sender: http1::SendRequest<SendBody>,
    http: Http,
    ended: bool,
    timer: LazyTimer,
    idle_since: Instant,
    slot: Slot,
}

impl Connection {
    /// Lets it read and write what it can; `cx` is woken when there is more to do.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.ended && Pin::new(&mut self.http).poll(cx).is_ready() {
            self.ended = true;
        }
    }

    /// The same, leaving the socket open if the upstream switches to another protocol.
    pub(super) fn drive_towards_upgrade(&mut self, cx: &mut Context<'_>) {
        if !self.ended && self.http.poll_without_shutdown(cx).is_ready() {
            self.ended = true;
        }
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

    pub(super) fn idle_since(&self) -> Instant {
        self.idle_since
    }

    pub(super) fn rest(&mut self) {
        self.idle_since = Instant::now();
    }

    /// Takes the socket for another protocol, with what was read of that already.
    pub(super) fn into_stream(self) -> (Stream, Bytes, Slot) {
        let parts = self.http.into_parts();
        (parts.io.into_inner(), parts.read_buf, self.slot)
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
        let handshake = http1::Builder::new().handshake(TokioIo::new(stream)).await;
        let (sender, http) = handshake.map_err(|_| "the upstream's connection failed")?;
        let timer = LazyTimer::new();
        let idle_since = Instant::now();
        Ok(Box::new(Connection { sender, http, ended: false, timer, idle_since, slot }))
    }

    async fn reach(&self) -> Result<Stream, (&'static str, Option<io::Error>)> {
        let host = (self.address.host(), self.address.port());
        let found = tokio::net::lookup_host(host).await;
        let found = found.map_err(|why| ("the upstream's name was not found", Some(why)))?;
        let tcp = first_of(found).await;
        let tcp = tcp.map_err(|why| ("the upstream refused the connection", Some(why)))?;
        let Some(tls) = &self.tls else { return Ok(Stream::Plain(tcp)) };
        let name = ServerName::try_from(self.address.host().to_owned());
        let name = name.map_err(|_| ("the upstream's name is no name for TLS", None))?;
        match tls.connect(name, tcp).await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
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

/// The bytes below HTTP.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
