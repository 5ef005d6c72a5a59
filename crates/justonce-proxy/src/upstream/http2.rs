//! HTTP/2 to one upstream: connections that many requests share, each driven by a task of its own.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::{CONNECTION, HOST, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, Scheme};
use http::{Request, Uri, Version};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

use super::connection::Connector;
use super::headers::move_host;
use super::request_body::RequestBody;
use super::stream::{SocketProbe, StreamState};

/// How many requests share a connection at most, unless the upstream allows fewer. What a
/// connection cannot take would wait in it, and could not be told from what was sent.
const REQUESTS_PER_CONNECTION: u16 = 100;
/// How much of a response the upstream may send before its client reads on. All responses of a
/// connection together never use up what the connection has: who reads nothing stops nobody else.
const WINDOW_BYTES: u32 = 64 * 1024;
/// The longest head of a response, in bytes: as many headers as with HTTP/1.1, of usual lengths.
const MAX_HEAD_BYTES: u32 = 64 * 1024;
/// After how long without traffic a connection is tested, and how long that may take.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
const SLOW: &str = "connecting to the upstream took too long";
const FAILED: &str = "the upstream's connection failed";
const FULL: &str = "all connections to the upstream are in use";

pub(super) type Sender = http2::SendRequest<RequestBody>;

/// The HTTP/2 connections to one upstream.
pub(super) struct Http2Pool {
    /// Held while one is opened: the others wait for it, and use it too.
    open: Mutex<Vec<Shared>>,
    max_connections: usize,
}

/// A connection that requests share.
struct Shared {
    sender: Sender,
    /// Gone with the task that drives it, so that the socket does not stay open for this.
    probe: Weak<SocketProbe>,
    state: Arc<StreamState>,
    places: Arc<Places>,
}

/// How many requests a connection has, and how many its upstream allows.
struct Places {
    taken: AtomicUsize,
    allowed: AtomicUsize,
    /// Notified when a request ends: what is allowed is looked at again.
    freed: Notify,
}

/// A place on a connection, for one request.
pub(super) struct Http2Slot {
    pub(super) sender: Sender,
    pub(super) state: Arc<StreamState>,
    pub(super) guard: Http2Guard,
}

/// Counts a request on its connection until it is dropped.
pub(super) struct Http2Guard(Arc<Places>);

impl Drop for Http2Guard {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_one();
    }
}

impl Http2Pool {
    pub(super) fn new(max_connections: usize) -> Self {
        Self { open: Mutex::default(), max_connections }
    }

    /// A place for one request. On failure not a byte of it was sent.
    pub(super) async fn acquire(&self, connector: &Connector) -> Result<Http2Slot, &'static str> {
        let acquired = timeout(connector.timeout, async {
            let mut open = self.open.lock().await;
            open.retain(|one| !one.has_ended());
            if let Some(slot) = open.iter().find_map(Shared::slot) {
                return Ok(slot);
            }
            if open.len() >= self.max_connections {
                return Err(FULL);
            }
            let shared = Shared::open(connector).await?;
            let slot = shared.slot().ok_or(FULL);
            open.push(shared);
            slot
        });
        acquired.await.map_err(|_| SLOW)?
    }

    /// How many connections are open, and how many of them nobody uses; nothing while one opens.
    pub(super) fn count(&self) -> (usize, usize) {
        let Ok(open) = self.open.try_lock() else { return (0, 0) };
        let live = open.iter().filter(|one| !one.has_ended());
        let idle = live.clone().filter(|one| one.places.taken.load(Ordering::Relaxed) == 0);
        (live.clone().count(), idle.count())
    }
}

impl Shared {
    async fn open(connector: &Connector) -> Result<Self, &'static str> {
        let stream = connector.open().await.map_err(|(what, why)| {
            let why = why.map(tracing::field::display);
            tracing::debug!(upstream = %connector.address, why, what);
            what
        })?;
        let probe = Arc::new(stream.probe().map_err(|_| FAILED)?);
        let state = stream.state();
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES * u32::from(REQUESTS_PER_CONNECTION))
            .max_header_list_size(MAX_HEAD_BYTES);
        let handshake = http.handshake(TokioIo::new(stream)).await;
        let (sender, mut connection) = handshake.map_err(|_| FAILED)?;
        let upstream = connector.address.clone();
        let asked = Arc::downgrade(&probe);
        let places = Arc::new(Places {
            taken: AtomicUsize::new(0),
            allowed: AtomicUsize::new(REQUESTS_PER_CONNECTION.into()),
            freed: Notify::new(),
        });
        let known = Arc::clone(&places);
        tokio::spawn(async move {
            let _probe = probe;
            let driven = loop {
                // The upstream may change it at any time.
                let allowed = connection.current_max_send_streams();
                let allowed = allowed.clamp(1, REQUESTS_PER_CONNECTION.into());
                known.allowed.store(allowed, Ordering::Release);
                tokio::select! {
                    driven = &mut connection => break driven,
                    () = known.freed.notified() => {}
                }
            };
            if let Err(error) = driven {
                tracing::debug!(%upstream, %error, "an HTTP/2 connection broke off");
            }
        });
        Ok(Self { sender, probe: asked, state, places })
    }

    /// Whether it takes no more requests. The socket itself is asked: a request that was written to
    /// a connection that the upstream has closed could not be told from one that it read.
    fn has_ended(&self) -> bool {
        self.sender.is_closed() || self.probe.upgrade().is_none_or(|probe| probe.has_ended())
    }

    fn slot(&self) -> Option<Http2Slot> {
        // Places are given under the lock of the pool, so none is given twice.
        let Places { taken, allowed, .. } = &*self.places;
        if taken.load(Ordering::Acquire) >= allowed.load(Ordering::Acquire) {
            return None;
        }
        taken.fetch_add(1, Ordering::AcqRel);
        let guard = Http2Guard(Arc::clone(&self.places));
        Some(Http2Slot { sender: self.sender.clone(), state: Arc::clone(&self.state), guard })
    }
}

impl fmt::Debug for Http2Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Http2Pool").field(&self.count()).finish()
    }
}

/// What HTTP/2 has no place for.
const HTTP1_ONLY: [HeaderName; 3] = [CONNECTION, TRANSFER_ENCODING, UPGRADE];

/// Brings a request into the form of HTTP/2, if it has one: its host is a part of its target.
pub(super) fn to_http2<B>(request: &mut Request<B>, is_tls: bool) -> bool {
    let Some(uri) = with_host(request, is_tls) else { return false };
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    let headers = request.headers_mut();
    headers.remove(HOST);
    for name in HTTP1_ONLY {
        headers.remove(name);
    }
    true
}

fn with_host<B>(request: &Request<B>, is_tls: bool) -> Option<Uri> {
    let host = request.headers().get(HOST)?;
    let mut parts = request.uri().clone().into_parts();
    parts.authority = Some(Authority::try_from(host.as_bytes()).ok()?);
    parts.scheme = Some(if is_tls { Scheme::HTTPS } else { Scheme::HTTP });
    Uri::from_parts(parts).ok()
}

/// Brings it back, for another upstream.
pub(super) fn from_http2<B>(request: &mut Request<B>) {
    let mut uri = std::mem::take(request.uri_mut());
    move_host(&mut uri, request.headers_mut());
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
}

/// Whether an error says that the upstream did not process the request: it ended the connection
/// before this one (GOAWAY names the last that it looked at), or refused it (REFUSED_STREAM).
///
/// Before the body has begun, an error may be that of the connection and not of this request, whose
/// head is on its way then: a GOAWAY says nothing about it.
pub(super) fn was_not_processed(error: &hyper::Error, has_begun_body: bool) -> bool {
    let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
    causes.filter_map(|error| error.downcast_ref::<h2::Error>()).any(|error| {
        let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        error.is_remote() && (is_refused || (has_begun_body && error.is_go_away()))
    })
}
