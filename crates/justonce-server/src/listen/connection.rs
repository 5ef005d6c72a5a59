//! One client's connection: which protocol it speaks, and how long it may take.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, timeout};

use super::door::Door;
use super::early::Early;
use super::gauge::Gauge;
use super::limits::{
    MAX_ERROR_STREAMS, MAX_RESET_STREAMS, MAX_STREAMS, MIN_HEAD_BYTES, PING_INTERVAL, PING_TIMEOUT,
};
use super::listener::Serves;
use super::shutdown::{Crowd, Permit, Stage};
use super::watch::Watch;
use super::wire::Wire;
use super::{Client, ListenLimits};
use crate::proxy::LazyTimer;

/// What an HTTP/2 client with prior knowledge says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How often an unused connection is looked at before it is closed.
const LOOKS: u32 = 5;

/// What all connections of a listener share.
pub(super) struct House {
    pub(super) limits: ListenLimits,
    pub(super) crowd: Arc<Crowd>,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
}

impl House {
    pub(super) fn new(limits: ListenLimits, crowd: Arc<Crowd>) -> Self {
        let max_head_bytes = limits.max_head_bytes.max(MIN_HEAD_BYTES);
        let mut http1 = http1::Builder::new();
        // Heads are timed by ourselves: the parser's timer also runs while nothing is asked.
        http1.header_read_timeout(None).max_buf_size(max_head_bytes).half_close(false);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
            .max_local_error_reset_streams(MAX_ERROR_STREAMS)
            .max_header_list_size(u32::try_from(max_head_bytes).unwrap_or(u32::MAX))
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        Self { limits, crowd, http1, http2 }
    }

    /// Serves one connection to its end. `is_http2` is what TLS has settled.
    pub(super) async fn serve<T, S>(
        &self,
        mut stream: T,
        is_http2: Option<bool>,
        client: Client,
        service: S,
        permit: Permit,
    ) where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Serves,
    {
        let mut first = Vec::new();
        let is_http2 = match is_http2 {
            Some(is_http2) => is_http2,
            None => match self.sniff(&mut stream, &mut first).await {
                Some(is_http2) => is_http2,
                None => return,
            },
        };
        let gauge = Arc::<Gauge>::default();
        let watch = if is_http2 { Watch::off() } else { Watch::new() };
        let early = Arc::<Early>::default();
        let shared = (Arc::clone(&gauge), Arc::clone(&early));
        let wire = TokioIo::new(Wire::new(stream, first, watch, shared.0, shared.1, permit));
        let patience = self.limits.body_timeout;
        let door = Door { service, client, gauge: Arc::clone(&gauge), early, patience };
        if is_http2 {
            let connection = self.http2.serve_connection(wire, door);
            self.drive(connection, http2::Connection::graceful_shutdown, &gauge).await;
        } else {
            let connection = self.http1.serve_connection(wire, door).with_upgrades();
            self.drive(connection, http1::UpgradeableConnection::graceful_shutdown, &gauge).await;
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
        let mut reading = pin!(timeout(self.limits.header_timeout, reading));
        let mut bell = pin!(self.crowd.bell.notified());
        poll_fn(|cx| {
            // Nothing was asked yet: there is nothing to finish.
            if self.crowd.stage() != Stage::Running || bell.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            reading.as_mut().poll(cx).map(|read| read.ok().flatten())
        })
        .await
    }

    async fn drive<C: Future>(&self, connection: C, finish: fn(Pin<&mut C>), gauge: &Gauge) {
        let mut connection = pin!(connection);
        let mut patience = Patience::new(&self.limits);
        let mut bell = pin!(self.crowd.bell.notified());
        // The bell keeps this task's waker: it is asked once for every stage, not at every turn.
        let mut heard = None;
        poll_fn(|cx| {
            let stage = self.crowd.stage();
            if heard != Some(stage) {
                heard = Some(stage);
                bell.set(self.crowd.bell.notified());
                if bell.as_mut().poll(cx).is_ready() || self.crowd.stage() != stage {
                    heard = None;
                    cx.waker().wake_by_ref();
                }
                match stage {
                    Stage::Running => {}
                    Stage::Finishing => finish(connection.as_mut()),
                    Stage::Gone => return Poll::Ready(()),
                }
            }
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            loop {
                match ready!(patience.poll_ended(gauge, cx)) {
                    End::Now => return Poll::Ready(()),
                    End::Unused => {
                        // An HTTP/2 client is told, so that it does not ask in this moment. It has
                        // until the next look to leave.
                        finish(connection.as_mut());
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

/// How a connection is ended.
enum End {
    /// At once.
    Now,
    /// It is told that nothing more is served on it.
    Unused,
}

/// How long a connection may take: for a head, for nothing, for reading what it asked for.
struct Patience {
    timer: LazyTimer,
    header_timeout: Duration,
    look_after: Duration,
    next_look: Instant,
    quiet_looks: u32,
    activity: u64,
    told: bool,
    // The head under way: after how many requests it began, and until when it must end.
    head: Option<(u64, Instant)>,
}

impl Patience {
    fn new(limits: &ListenLimits) -> Self {
        let look_after = limits.keep_alive / LOOKS;
        Self {
            timer: LazyTimer::new(),
            header_timeout: limits.header_timeout,
            look_after,
            next_look: Instant::now() + look_after,
            quiet_looks: 0,
            activity: 0,
            told: false,
            head: None,
        }
    }

    fn poll_ended(&mut self, gauge: &Gauge, cx: &mut Context<'_>) -> Poll<End> {
        let requests = gauge.requests();
        if !gauge.is_in_head() {
            self.head = None;
        } else if self.head.is_none_or(|(number, _)| number != requests) {
            self.head = Some((requests, Instant::now() + self.header_timeout));
        }
        loop {
            let deadline = self.head.map_or(self.next_look, |(_, end)| end.min(self.next_look));
            if self.timer.poll(cx, deadline).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if self.head.is_some_and(|(_, end)| end <= now) {
                return Poll::Ready(End::Now);
            }
            let looks_dead = self.next_look <= now && self.looks_dead(gauge);
            self.next_look = self.next_look.max(now + self.look_after);
            if looks_dead {
                let told = std::mem::replace(&mut self.told, true);
                return Poll::Ready(if told || gauge.is_busy() { End::Now } else { End::Unused });
            }
        }
    }

    fn looks_dead(&mut self, gauge: &Gauge) -> bool {
        let activity = gauge.activity();
        let working = gauge.is_working() && !gauge.is_blocked();
        if working || activity != self.activity {
            (self.activity, self.quiet_looks) = (activity, 0);
            return false;
        }
        self.quiet_looks += 1;
        self.quiet_looks >= LOOKS
    }
}
