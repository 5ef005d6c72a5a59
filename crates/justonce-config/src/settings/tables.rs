//! The settings of the gateway as a whole: what stands outside `[defaults]` and routes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use justonce_core::MAX_BODY_BYTES;
use justonce_net::SocketAddress;
use tracing::Level;

use super::access_log::{AccessLogLayer, TraceLayer};
use super::proxies::ProxiesLayer;
use super::store::{EmbeddedLayer, NearCacheLayer, PostgresLayer, RedisLayer};
use super::tls::TlsLayer;
use super::token::{Secret, secret};
use super::{StoreUrl, address, store_url};
use crate::declare::{settings, tables};
use crate::kind::{
    choice, custom, flag, number, one_or_more, optional, path, ratio, size, time, timeout,
    timeout_or_zero,
};

/// More connections, executions or waiters than this are a mistake.
pub(super) const MANY: usize = 1_000_000;
/// The longest request body that may be allowed, in bytes: it is held in memory.
pub(super) const MAX_REQUEST_BYTES: usize = 1 << 30;

tables! {
    /// What one source says outside `[defaults]` and routes.
    GatewayLayer {
        /// What stands above the first table.
        group top: TopLayer;
        /// TLS for clients; without it, cleartext.
        table tls: TlsLayer;
        /// TLS to upstreams.
        table upstream_tls: UpstreamTlsLayer;
        /// Proxies in front of the gateway.
        table proxies: ProxiesLayer;
        /// Logs.
        table log: LogLayer;
        /// A line for each request.
        table access_log: AccessLogLayer;
        /// Trace context (W3C).
        table trace: TraceLayer;
        /// How much of everything.
        table limits: LimitsLayer;
        /// How long for everything.
        table timeouts: TimeoutsLayer;
        /// The embedded store.
        table embedded: EmbeddedLayer;
        /// Stores in Redis.
        table redis: RedisLayer;
        /// Stores in PostgreSQL.
        table postgres: PostgresLayer;
        /// Outcomes of a store over a network that are kept in this process too.
        table near_cache: NearCacheLayer;
        /// The circuit breaker of each upstream.
        table breaker: BreakerLayer;
        /// Operations whose gateway died, on routes with `complete`.
        table completer: CompleterLayer;
    }
}

settings! {
    /// What stands above the first table.
    layer TopLayer {
        /// Where clients connect: an address and a port, or a Unix socket, as in
        /// `unix:/run/justonce/http.sock` ([more](operating.md#sockets)).
        listen: SocketAddress = custom(address::listen),
            default "127.0.0.1:8080", example "0.0.0.0:443";
        /// The mode of the file of a Unix socket in `listen`: whoever may write to it can connect.
        listen_mode: u32 = address::mode(), default "0660", example "0666";
        /// Where operators connect: health, metrics, records; with or without `http://`, as
        /// `justonce keys` takes it; `"off"` for nowhere. It has the `timeouts` of `listen`, and
        /// 1024 connections.
        admin: Option<SocketAddr> = custom(address::admin),
            default "127.0.0.1:8081", example "10.0.0.5:8081";
        /// What operators must show; needed unless `admin` is loopback.
        admin_token: Secret = custom(secret), example "JYpq4xMbCzWkVtR8", live;
        /// A file that holds the token, instead.
        admin_token_file: PathBuf = custom(path), example "/run/secrets/justonce", live;
        /// What the service must show when it [reports](operating.md#callbacks) on the
        /// admin address what became of an operation; without it, it cannot.
        callback_token: Secret = custom(secret), example "wq7RkP0sZxMvTn3B", live;
        /// A file that holds that token, instead.
        callback_token_file: PathBuf = custom(path), example "/run/secrets/callbacks", live;
        /// Where the API is: one address, or a list that shares the load; no path. A Unix socket is
        /// written as `unix:/run/shop.sock`. Short for
        /// [`upstreams.default.urls`](#upstreams).
        upstream: Vec<String> = one_or_more(address::upstream),
            example "http://10.0.0.7:9000, http://10.0.0.8:9000", live;
        /// Where records are kept: `memory:`, `file:PATH`, `redis://…`, `redis-sentinel://…`,
        /// `redis-cluster://…`, `postgres://…` or `tiered:redis://…,postgres://…`
        /// ([which?](operating.md#which-store)); with TLS, `rediss…://…` and
        /// [`postgres://…?sslmode=verify-full`](operating.md#tls-to-stores).
        store: StoreUrl = custom(store_url::url),
            default "file:./justonce-data", example "postgres://shop@db/shop";
        /// How long the gateway goes on as before after it is told to stop, while `/readyz` already
        /// says 503: load balancers need that long to send nothing more.
        drain_delay: Duration = timeout_or_zero(), default "0s", example "10s";
        /// How long running operations may take to finish when the gateway stops.
        grace: Duration = timeout_or_zero(), default "30s", example "2m";
        /// How long new connections may wait, in a restart by SIGUSR2 with the embedded store, for
        /// what runs to end; if it takes longer, the old process goes on
        /// ([more](operating.md#restart-without-a-refused-connection)).
        handover_pause: Duration = timeout(), default "10s", example "30s";
        /// What the `type` of a problem begins with; without it, the gateway's own pages.
        problems_base: Option<String> = optional(custom(address::problems_base)),
            example "https://docs.example.com/errors";
    }
}

settings! {
    /// TLS to upstreams.
    layer UpstreamTlsLayer {
        /// Certificates (PEM) that `https://` upstreams are trusted by, beside the system's, if
        /// they have no `tls.ca` of their own.
        ca: Option<PathBuf> = optional(custom(path)), example "/etc/justonce/ca.pem", live;
    }
}

settings! {
    /// What is logged, and how.
    #[derive(Copy)]
    pub struct Log from LogLayer {
        /// From which level on: `error`, `warn`, `info`, `debug` or `trace`.
        level: Level = choice(LEVELS), default "info", example "warn";
        /// `text` for people, `json` for machines.
        format: LogFormat = choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]),
            default "text", example "json";
    }
}

const LEVELS: &[(&str, Level)] = &[
    ("error", Level::ERROR),
    ("warn", Level::WARN),
    ("info", Level::INFO),
    ("debug", Level::DEBUG),
    ("trace", Level::TRACE),
];

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// An object a line.
    Json,
}

settings! {
    /// How much of everything.
    #[derive(Copy)]
    pub struct Limits from LimitsLayer {
        /// The longest request body of a protected request; over it 413.
        request_body: usize = size(0..=MAX_REQUEST_BYTES),
            default "1MiB", example "256KiB", live;
        /// The longest response body that is stored; 4 MiB is the most.
        stored_response_body: usize = size(0..=MAX_BODY_BYTES),
            default "4MiB", example "64KiB", live;
        /// Open connections of clients.
        connections: usize = number(1..=MANY), default "16384", example "50000";
        /// The longest head of a request.
        header_bytes: usize = size(8192..=1 << 20), default "64KiB", example "16KiB";
        /// Operations executed at the same time.
        concurrent: usize = number(1..=MANY), default "1000", example "200";
        /// Duplicates that wait at the same time.
        waiters: usize = number(0..=MANY), default "10000", example "500";
    }
}

settings! {
    /// How long for everything.
    #[derive(Copy)]
    pub struct Timeouts from TimeoutsLayer {
        /// To connect to an upstream.
        connect: Duration = timeout(), default "5s", example "500ms";
        /// For an upstream to respond; also for a pause inside its response, which may last 60 s at
        /// least.
        response: Duration = timeout(), default "60s", example "10s";
        /// For a connection of a client without a request.
        idle: Duration = timeout(), default "90s", example "15s";
        /// For a connection to an upstream without a request; set it below the time after which the
        /// upstream closes its side. `Keep-Alive: timeout=` of an upstream shortens it
        /// ([why](decisions/0050-what-counts-as-not-sent.md)).
        upstream_idle: Duration = timeout(), default "4s", example "55s";
        /// For a client to send the head of a request.
        header: Duration = timeout(), default "10s", example "5s";
        /// For a client to pause while it sends a body.
        body: Duration = timeout(), default "30s", example "10s";
        /// For a store over a network to answer, retries included; then 503, or the response of the
        /// service if there is one: it is stored later.
        store: Duration = timeout(), default "5s", example "2s";
    }
}

settings! {
    /// The circuit breaker of each upstream.
    #[derive(Copy)]
    pub struct Breaker from BreakerLayer {
        /// Whether an upstream that fails gets no new operations for a while.
        enabled: bool = flag(), default "true", example "false";
        /// Over how long its failures are counted.
        window: Duration = timeout(), default "10s", example "1m";
        /// With fewer requests in the window nothing is concluded.
        min_requests: usize = number(1..=MANY), default "20", example "100";
        /// Which part of them must have failed.
        failure_ratio: f64 = ratio(), default "0.5", example "0.8";
        /// How long it gets no new operations; then one request is tried.
        open_for: Duration = timeout(), default "5s", example "30s";
    }
}

settings! {
    /// How operations are completed whose gateway died.
    #[derive(Copy)]
    pub struct CompleterLimits from CompleterLayer {
        /// The pause between two searches for operations whose gateway died, on routes with
        /// `complete`.
        every: Duration = time(Duration::from_millis(100)..=Duration::from_secs(3600)),
            default "5s", example "1s";
        /// How many of them are completed at once.
        at_once: usize = number(1..=1000), default "16", example "4";
    }
}
