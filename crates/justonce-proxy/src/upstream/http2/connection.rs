//! One HTTP/2 connection: how it is opened, and the task that drives it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use tokio::time::{Instant, timeout};

use super::heartbeat::Heartbeat;
use super::pool::{Link, PoolHandle};
use crate::timer::LazyTimer;
use crate::upstream::connection::Connector;
use crate::upstream::stream::{SocketProbe, Stream};

/// How many requests share a connection at most, unless the upstream allows fewer.
pub(super) const REQUESTS_PER_CONNECTION: usize = 100;
/// How much of a response the upstream may send before its client reads on.
const WINDOW_BYTES: u32 = 64 * 1024;
/// The same for all responses of a connection together: they never use it up, so that who reads
/// nothing stops nobody else.
const CONNECTION_WINDOW_BYTES: u32 = WINDOW_BYTES * 100;
/// The longest head of a response, in bytes: as many headers as with HTTP/1.1, of usual lengths.
const MAX_HEAD_BYTES: u32 = 64 * 1024;
/// Of how many streams that were given up it is known for a while that what still comes for them
/// is to be ignored. What comes for others is answered, and a connection ends after a thousand of
/// those: not because many callers have left at once.
const KNOWN_RESETS: usize = 10 * REQUESTS_PER_CONNECTION;
/// How long a connection that is to end may take for that.
const MAX_CLOSE: Duration = Duration::from_secs(20);

const SLOW: &str = "connecting to the upstream took too long";
const FAILED: &str = "the upstream's connection failed";
const NO_HTTP2: &str = "the upstream does not speak HTTP/2";

/// A connection whose upstream has said how many requests it allows.
pub(super) struct Opened {
    pub(super) sender: SendRequest<Bytes>,
    pub(super) probe: SocketProbe,
    pub(super) connection: h2::client::Connection<Stream, Bytes>,
}

impl Opened {
    /// Opens a connection. On failure not a byte of any request was sent.
    pub(super) async fn open(connector: &Connector) -> Result<Self, &'static str> {
        timeout(connector.timeout, Self::connect(connector)).await.unwrap_or(Err(SLOW))
    }

    async fn connect(connector: &Connector) -> Result<Self, &'static str> {
        let stream = connector.open().await.map_err(|(what, why)| {
            let why = why.map(tracing::field::display);
            tracing::debug!(upstream = %connector.address, why, what);
            what
        })?;
        let probe = stream.probe().map_err(|_| FAILED)?;
        let handshake = Builder::new()
            // None before it is known how many are allowed.
            .initial_max_send_streams(0)
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(MAX_HEAD_BYTES)
            .max_concurrent_reset_streams(KNOWN_RESETS)
            .enable_push(false)
            .handshake(stream)
            .await;
        let (sender, mut connection) = handshake.map_err(|_| FAILED)?;
        let known = poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
            Poll::Ready(ended) => Poll::Ready(ended.and(Err(h2::Reason::NO_ERROR.into()))),
            Poll::Pending if connection.max_concurrent_send_streams() > 0 => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        });
        known.await.map_err(|error: h2::Error| {
            tracing::debug!(upstream = %connector.address, %error, "no HTTP/2 connection");
            if error.is_io() { FAILED } else { NO_HTTP2 }
        })?;
        Ok(Self { sender, probe, connection })
    }

    /// How many requests are allowed now.
    pub(super) fn allowed(&self) -> usize {
        self.connection.max_concurrent_send_streams()
    }
}

/// Drives a connection to its end, and tells the pool what changes.
pub(super) async fn drive(
    mut connection: h2::client::Connection<Stream, Bytes>,
    link: Arc<Link>,
    pool: PoolHandle,
) {
    let mut heartbeat = Heartbeat::new(connection.ping_pong());
    let mut timer = LazyTimer::new();
    let mut woken = pin!(link.changed());
    let mut allowed = connection.max_concurrent_send_streams();
    // When it ends if nothing happens; none while requests run.
    let mut idle_until = pool.settled(&link, 0, allowed);
    let mut closing: Option<Instant> = None;
    let ended = poll_fn(|cx| {
        loop {
            // What has ended before is written by this poll, so that its place is free after it.
            let freed = link.take_freed();
            if let Poll::Ready(ended) = Pin::new(&mut connection).poll(cx) {
                return Poll::Ready(ended);
            }
            let now_allowed = connection.max_concurrent_send_streams();
            let is_woken = woken.as_mut().poll(cx).is_ready();
            if is_woken {
                woken.set(link.changed());
            }
            if freed > 0 || now_allowed != allowed || is_woken {
                allowed = now_allowed;
                idle_until = pool.settled(&link, freed, allowed);
            }
            if is_woken {
                continue;
            }
            // Requests that end say nothing: they also end because nothing comes back.
            if link.take_heard() {
                heartbeat.alive();
            }
            let now = Instant::now();
            if idle_until.is_some_and(|until| until <= now) && closing.is_none() {
                // Without its place in the pool the connection ends by itself.
                closing = pool.remove_idle(&link).then(|| now + MAX_CLOSE);
                idle_until = pool.settled(&link, 0, allowed);
                continue;
            }
            if heartbeat.poll_failed(now, cx).is_ready() || closing.is_some_and(|at| at <= now) {
                return Poll::Ready(Ok(()));
            }
            let deadlines = [heartbeat.deadline(), idle_until, closing];
            let Some(next) = deadlines.into_iter().flatten().min() else { return Poll::Pending };
            if timer.poll(cx, next).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP/2 connection broke off");
    }
    drop(connection);
    pool.remove(&link);
}
