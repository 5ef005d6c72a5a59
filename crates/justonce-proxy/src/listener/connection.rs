//! Serves one client connection, in HTTP/1.1 or HTTP/2.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Version;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use justonce_http::ClientCertificate;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, timeout};

use super::activity::{Activity, Deadlines, Expired};
use super::framing::FramingCheck;
use super::io::ClientIo;
use super::refused::{Ended, Observer, RefusalReason, RefusedRequest};
use super::service::{ListenerService, RequestService};
use super::settings::{
    FIRST_BYTES, ListenerSettings, MAX_ERROR_STREAMS, MAX_RESET_STREAMS, MAX_STREAMS,
    MIN_HEAD_BYTES, PING_INTERVAL, PING_TIMEOUT, WINDOW_BYTES,
};
use super::throttle::Throttle;
use super::tracker::{Asker, ConnectionGuard, ConnectionTracker, Stage};
use crate::client::Client;
use crate::forwarded::TrustedProxies;
use crate::informational::InformationalQueue;
use crate::timer::LazyTimer;

/// The first bytes of an HTTP/2 client with prior knowledge.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whose a connection is, and whether what it says about other clients counts.
pub(super) struct Origin {
    pub(super) client: Client,
    pub(super) is_trusted: bool,
}

/// Serves the connections of a listener.
pub(super) struct ConnectionServer {
    pub(super) settings: ListenerSettings,
    pub(super) proxies: Arc<TrustedProxies>,
    pub(super) refusals: Throttle,
    pub(super) observer: Observer,
    pub(super) tracker: Arc<ConnectionTracker>,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
}

impl ConnectionServer {
    pub(super) fn new(
        settings: ListenerSettings,
        proxies: TrustedProxies,
        tracker: Arc<ConnectionTracker>,
        observer: Observer,
    ) -> Self {
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
        let (proxies, refusals) = (Arc::new(proxies), Throttle::default());
        Self { settings, proxies, refusals, observer, tracker, http1, http2 }
    }

    /// Serves one connection to its end. `is_http2` is what TLS has negotiated, and the certificate
    /// what the other end has shown in it.
    pub(super) async fn serve<T, S>(
        &self,
        mut stream: T,
        is_http2: Option<bool>,
        (from, certificate): (Origin, Option<ClientCertificate>),
        service: S,
        (guard, asker): (ConnectionGuard, Asker),
    ) where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: ListenerService,
    {
        let mut first = Vec::new();
        let is_http2 = match is_http2 {
            Some(is_http2) => is_http2,
            None => match self.sniff(&mut stream, &mut first).await {
                Some(is_http2) => is_http2,
                None => {
                    self.note_first(&from.client, &first);
                    return;
                }
            },
        };
        let activity = Arc::new(Activity::new(Arc::clone(&self.tracker)));
        let informational = Arc::<InformationalQueue>::default();
        let client = from.client.address();
        let service = RequestService {
            service,
            client: from.client,
            // That of a proxy is not its clients'.
            certificate: certificate.filter(|_| !from.is_trusted),
            proxies: from.is_trusted.then(|| Arc::clone(&self.proxies)),
            activity: Arc::clone(&activity),
            informational: Arc::clone(&informational),
            body_timeout: self.settings.body_timeout,
            aborted: self.tracker.aborted.clone(),
            observer: self.observer.clone(),
        };
        let framing = if is_http2 { FramingCheck::off() } else { FramingCheck::new() };
        let io = ClientIo::new(stream, first, framing, Arc::clone(&activity), informational, guard);
        let io = TokioIo::new(io);
        let service = service_fn(move |request| service.respond(request));
        let totals = &self.tracker.totals;
        let ending = Ending::new(asker);
        if is_http2 {
            let _speaker = totals.http2.begin();
            let connection = self.http2.serve_connection(io, service);
            self.drive(connection, http2::Connection::graceful_shutdown, &activity, ending).await;
        } else {
            let _speaker = totals.http1.begin();
            let connection = self.http1.serve_connection(io, service).with_upgrades();
            let shut_down = http1::UpgradeableConnection::graceful_shutdown;
            let (ended, elapsed) = self.drive(connection, shut_down, &activity, ending).await;
            if activity.has_unread_head() {
                let (reason, status) = ended.of_a_head();
                let (version, head) = (Version::HTTP_11, None);
                let refused = RefusedRequest { client, version, head, status, reason, elapsed };
                self.observer.refused(&refused);
            }
        }
    }

    /// Notes a request of which only the first bytes have come.
    fn note_first(&self, client: &Client, first: &[u8]) {
        if !first.is_empty() {
            self.observer.refused(&RefusedRequest {
                client: client.address(),
                version: Version::HTTP_11,
                head: None,
                status: None,
                reason: RefusalReason::CutOff,
                elapsed: Duration::ZERO,
            });
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
        let reading = timeout(self.settings.header_timeout, reading);
        self.tracker.unless_too_late(reading).await?.ok().flatten()
    }

    /// Drives a connection to its end. Returns how it ended, and how long the head under way then
    /// had been coming.
    async fn drive<C: Future<Output = hyper::Result<()>>>(
        &self,
        connection: C,
        shut_down: fn(Pin<&mut C>),
        activity: &Activity,
        mut ending: Ending,
    ) -> (Ended, Duration) {
        let mut connection = pin!(connection);
        let mut deadlines = Deadlines::new(&self.settings);
        let mut changed = pin!(self.tracker.changed.notified());
        // The notification is polled once per stage and not each time: polling it takes a lock that
        // all connections share.
        let mut seen = None;
        let ended = poll_fn(|cx| {
            let stage = self.tracker.stage();
            if seen != Some(stage) {
                seen = Some(stage);
                changed.set(self.tracker.changed.notified());
                if changed.as_mut().poll(cx).is_ready() || self.tracker.stage() != stage {
                    seen = None;
                    cx.waker().wake_by_ref();
                }
                if stage == Stage::Aborted {
                    return Poll::Ready(Ended::Aborted);
                }
            }
            // What has arrived is read first: it may be a request.
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(Ended::By(ended));
            }
            if ending.is_due(stage, activity, cx) {
                shut_down(connection.as_mut());
                if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                    return Poll::Ready(Ended::By(ended));
                }
            }
            loop {
                match ready!(deadlines.poll_expired(activity, cx)) {
                    Expired::Close => return Poll::Ready(Ended::TimedOut),
                    Expired::ShutDown => {
                        // The notice keeps an HTTP/2 client from sending a request at this moment.
                        // It has until the next check to close.
                        shut_down(connection.as_mut());
                        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                            return Poll::Ready(Ended::By(ended));
                        }
                    }
                }
            }
        });
        let ended = ended.await;
        (ended, deadlines.in_head_for())
    }
}

/// When a connection is told that no further request is served, once its listener drains: not in
/// the middle of the head of one, and not before the first one has had a moment to come.
struct Ending {
    /// Nothing once it was told.
    asker: Option<Asker>,
    /// Until when the first request may come.
    first_until: Instant,
    timer: LazyTimer,
}

impl Ending {
    fn new(asker: Asker) -> Self {
        let first_until = Instant::now() + FIRST_BYTES;
        Self { asker: Some(asker), first_until, timer: LazyTimer::new() }
    }

    /// Whether it is to be told now; true once.
    fn is_due(&mut self, stage: Stage, activity: &Activity, cx: &mut Context<'_>) -> bool {
        if stage != Stage::Draining || self.asker.is_none() {
            return false;
        }
        // `deadlines` ends a head that does not end.
        if activity.is_in_head() {
            return false;
        }
        let is_new = activity.requests() == 0;
        if is_new && self.timer.poll(cx, self.first_until).is_pending() {
            return false;
        }
        self.asker.take().is_some()
    }
}
