//! Serves one client connection, in HTTP/1.1 or HTTP/2.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::timeout;

use super::activity::{Activity, Deadlines, Expired};
use super::framing::FramingCheck;
use super::io::ClientIo;
use super::service::{ListenerService, RequestService};
use super::settings::{
    ListenerSettings, MAX_ERROR_STREAMS, MAX_RESET_STREAMS, MAX_STREAMS, MIN_HEAD_BYTES,
    PING_INTERVAL, PING_TIMEOUT, WINDOW_BYTES,
};
use super::throttle::Throttle;
use super::tracker::{ConnectionGuard, ConnectionTracker, Stage};
use crate::client::Client;
use crate::forwarded::TrustedProxies;
use crate::informational::InformationalQueue;

/// The first bytes of an HTTP/2 client with prior knowledge.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves the connections of a listener.
pub(super) struct ConnectionServer {
    pub(super) settings: ListenerSettings,
    pub(super) proxies: Arc<TrustedProxies>,
    pub(super) refusals: Throttle,
    pub(super) tracker: ConnectionTracker,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
}

impl ConnectionServer {
    pub(super) fn new(settings: ListenerSettings, proxies: TrustedProxies) -> Self {
        let max_head_bytes = settings.max_head_bytes.max(MIN_HEAD_BYTES);
        let mut http1 = http1::Builder::new();
        // The parser's own timer for heads also runs while the connection is idle.
        http1.header_read_timeout(None).max_buf_size(max_head_bytes).half_close(false);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
            .max_local_error_reset_streams(MAX_ERROR_STREAMS)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_header_list_size(u32::try_from(max_head_bytes).unwrap_or(u32::MAX))
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        let tracker = ConnectionTracker::new(settings.max_connections);
        let (proxies, refusals) = (Arc::new(proxies), Throttle::default());
        Self { settings, proxies, refusals, tracker, http1, http2 }
    }

    /// Serves one connection to its end. `is_http2` is what TLS has negotiated.
    pub(super) async fn serve<T, S>(
        &self,
        mut stream: T,
        is_http2: Option<bool>,
        client: Client,
        service: S,
        guard: ConnectionGuard,
    ) where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: ListenerService,
    {
        let mut first = Vec::new();
        let is_http2 = match is_http2 {
            Some(is_http2) => is_http2,
            None => match self.sniff(&mut stream, &mut first).await {
                Some(is_http2) => is_http2,
                None => return,
            },
        };
        let activity = Arc::<Activity>::default();
        let informational = Arc::<InformationalQueue>::default();
        // Most listeners trust nobody, and then no request asks.
        let is_trusted = client.address().is_some_and(|peer| self.proxies.trusts(peer));
        let service = RequestService {
            service,
            client,
            proxies: is_trusted.then(|| Arc::clone(&self.proxies)),
            activity: Arc::clone(&activity),
            informational: Arc::clone(&informational),
            body_timeout: self.settings.body_timeout,
            aborted: self.tracker.aborted.clone(),
        };
        let framing = if is_http2 { FramingCheck::off() } else { FramingCheck::new() };
        let io = ClientIo::new(stream, first, framing, Arc::clone(&activity), informational, guard);
        let io = TokioIo::new(io);
        let service = service_fn(move |request| service.respond(request));
        if is_http2 {
            let connection = self.http2.serve_connection(io, service);
            self.drive(connection, http2::Connection::graceful_shutdown, &activity).await;
        } else {
            let connection = self.http1.serve_connection(io, service).with_upgrades();
            let shut_down = http1::UpgradeableConnection::graceful_shutdown;
            self.drive(connection, shut_down, &activity).await;
        }
    }

    /// Reads until it is clear which protocol this is.
    async fn sniff<T: AsyncRead + Unpin>(
        &self,
        stream: &mut T,
        first: &mut Vec<u8>,
    ) -> Option<bool> {
        let reading = async {
            loop {
                match stream.take((PREFACE.len() - first.len()) as u64).read_buf(first).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) if first == PREFACE => return Some(true),
                    Ok(_) if PREFACE.starts_with(first) => {}
                    Ok(_) => return Some(false),
                }
            }
        };
        let mut reading = pin!(timeout(self.settings.header_timeout, reading));
        let mut changed = pin!(self.tracker.changed.notified());
        poll_fn(|cx| {
            // No request has arrived: there is nothing to finish.
            if self.tracker.stage() != Stage::Running || changed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            reading.as_mut().poll(cx).map(|read| read.ok().flatten())
        })
        .await
    }

    async fn drive<C: Future>(
        &self,
        connection: C,
        shut_down: fn(Pin<&mut C>),
        activity: &Activity,
    ) {
        let mut connection = pin!(connection);
        let mut deadlines = Deadlines::new(&self.settings);
        let mut changed = pin!(self.tracker.changed.notified());
        // The notification is polled once per stage and not each time: polling it takes a lock that
        // all connections share.
        let mut seen = None;
        poll_fn(|cx| {
            let stage = self.tracker.stage();
            if seen != Some(stage) {
                seen = Some(stage);
                changed.set(self.tracker.changed.notified());
                if changed.as_mut().poll(cx).is_ready() || self.tracker.stage() != stage {
                    seen = None;
                    cx.waker().wake_by_ref();
                }
                match stage {
                    Stage::Running => {}
                    Stage::Draining => shut_down(connection.as_mut()),
                    Stage::Aborted => return Poll::Ready(()),
                }
            }
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            loop {
                match ready!(deadlines.poll_expired(activity, cx)) {
                    Expired::Close => return Poll::Ready(()),
                    Expired::ShutDown => {
                        // The notice keeps an HTTP/2 client from sending a request at this moment.
                        // It has until the next check to close.
                        shut_down(connection.as_mut());
                        if connection.as_mut().poll(cx).is_ready() {
                            return Poll::Ready(());
                        }
                    }
                }
            }
        })
        .await;
    }
}
