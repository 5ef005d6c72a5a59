//! The resolved configuration: complete, checked, and plain data.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use justonce::Policy;
use justonce::http::Pattern;
pub use justonce::http::{
    BodyMode, FingerprintRule, KeySource, KeySyntax, OnStatus, PathEscapes, Places, ScopePart,
    WhenBusy, WhenStoreDown,
};

pub use super::probe::{
    Fact, ProbeHeader, ProbeOutcome, ProbeRule, ProbeSettings, Template, Wanted,
};
pub use super::store::{
    NearCacheSettings, PostgresSettings, RedisSettings, ServerUrl, StoreSettings, StoreUrl,
};

/// Everything the gateway needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where operators connect; nothing if there is no such place.
    pub admin: Option<SocketAddr>,
    /// What operators must show.
    pub admin_token: Option<AdminToken>,
    /// What the downstream must show when it tells what became of an operation; nothing if it
    /// cannot.
    pub callback_token: Option<AdminToken>,
    /// The addresses of the API, `http://host:port` or `https://host:port`; at least one.
    pub upstreams: Vec<String>,
    /// Where records are kept.
    pub store: StoreUrl,
    /// How stores are used.
    pub stores: StoreSettings,
    /// How clients are talked to in private; nothing for cleartext.
    pub tls: Option<Tls>,
    /// Certificates that upstreams are trusted by, beside those of the system.
    pub upstream_ca: Option<PathBuf>,
    /// How long running operations may take to finish when the gateway stops.
    pub grace: Duration,
    /// What is logged, and how.
    pub log: Log,
    /// How much of everything.
    pub limits: Limits,
    /// How long for everything.
    pub timeouts: Timeouts,
    /// When an upstream is given a rest; nothing for never.
    pub breaker: Option<Breaker>,
    /// How operations are driven on whose gateway died.
    pub completer: CompleterLimits,
    /// What the `type` of a problem begins with, without a slash at the end; nothing for the
    /// gateway's own pages.
    pub problems_base: Option<String>,
    /// For every POST and PATCH that no route is for.
    pub default_route: RouteSettings,
    /// In the order of the file: the first that matches counts.
    pub routes: Vec<RouteSettings>,
    /// Variables that begin like ours and are not: the service links of Kubernetes.
    pub ignored_variables: Vec<String>,
}

impl Settings {
    /// The settings that differ and that only a restart can change; routes and `[defaults]` can be
    /// exchanged while the gateway runs.
    #[must_use]
    pub fn changed_for_restart(&self, new: &Self) -> Vec<&'static str> {
        let differs = [
            ("listen", self.listen != new.listen),
            ("admin", self.admin != new.admin),
            // Their values are read again on every reload.
            ("admin_token", self.admin_token.is_some() != new.admin_token.is_some()),
            ("callback_token", self.callback_token.is_some() != new.callback_token.is_some()),
            ("upstream", self.upstreams != new.upstreams),
            ("store", self.store != new.store),
            ("timeouts.store", self.stores.timeout != new.stores.timeout),
            ("redis", self.stores.redis != new.stores.redis),
            ("postgres", self.stores.postgres != new.stores.postgres),
            ("near_cache", self.stores.near_cache != new.stores.near_cache),
            ("tls", self.tls.is_some() != new.tls.is_some()),
            ("upstream_tls", self.upstream_ca != new.upstream_ca),
            ("grace", self.grace != new.grace),
            ("log", self.log != new.log),
            ("limits", self.limits != new.limits),
            ("timeouts", self.timeouts != new.timeouts),
            ("breaker", self.breaker != new.breaker),
            ("completer", self.completer != new.completer),
            ("problems_base", self.problems_base != new.problems_base),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

/// What operators or the downstream must show, or where it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminToken {
    /// The token itself.
    Text(Secret),
    /// The file it stands in.
    File(PathBuf),
}

impl AdminToken {
    /// The token, read from its file if it stands in one. White space around it does not count.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or holds no token.
    pub fn read(&self) -> std::io::Result<Secret> {
        match self {
            Self::Text(token) => Ok(token.clone()),
            Self::File(path) => match std::fs::read_to_string(path)?.trim() {
                "" => Err(std::io::Error::new(
                    std::io::ErrorKind::InvalidData,
                    "the file of the token is empty",
                )),
                token => Ok(Secret::new(token)),
            },
        }
    }
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text. Compare it in constant time, and do not log it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The gateway's own certificate. Both are PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate, and those between it and a root.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// From which level on.
    pub level: LogLevel,
    /// For people or for machines.
    pub format: LogFormat,
}

/// From which level on is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Failures only.
    Error,
    /// And what somebody should look at.
    Warn,
    /// And what happens: a line for each request.
    Info,
    /// And how.
    Debug,
    /// And everything else.
    Trace,
}

impl LogLevel {
    /// Its name, as `tracing` knows it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// An object a line.
    Json,
}

/// How much of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections of clients.
    pub connections: usize,
    /// Bytes of the head of a request.
    pub header_bytes: usize,
    /// Operations executed at the same time.
    pub concurrent: usize,
    /// Duplicates that wait at the same time.
    pub waiters: usize,
}

/// How long for everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To connect to an upstream.
    pub connect: Duration,
    /// For a connection of a client on which nothing is asked.
    pub idle: Duration,
    /// For a connection to an upstream on which nothing is asked.
    pub upstream_idle: Duration,
    /// For a client to send the head of a request.
    pub header: Duration,
    /// For a client to pause while it sends a body.
    pub body: Duration,
    /// For an upstream to answer what no route protects.
    pub response: Duration,
}

/// When an upstream is given a rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Breaker {
    /// Over how long its failures are counted.
    pub window: Duration,
    /// With fewer requests in the window nothing is concluded.
    pub min_requests: usize,
    /// Which part of them must have failed.
    pub failure_ratio: f64,
    /// How long the rest lasts before one request tries again.
    pub open_for: Duration,
}

/// How operations are driven on whose gateway died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleterLimits {
    /// The pause between two rounds.
    pub every: Duration,
    /// How many operations are driven at once.
    pub at_once: usize,
}

/// What a route promises and demands.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteSettings {
    /// Its name in metrics and logs.
    pub name: String,
    /// Which requests it is for; nothing for the default route: every other POST and PATCH.
    pub pattern: Option<Pattern>,
    /// Where its keys come from and how they are checked; nothing if it is not protected.
    pub key: Option<KeySettings>,
    /// What a request meets whose path can be read in two ways.
    pub path_escapes: PathEscapes,
    /// Whose namespace its keys live in.
    pub scope: Vec<ScopePart>,
    /// What counts as the same request.
    pub fingerprint: FingerprintRule,
    /// What a duplicate of a running operation gets.
    pub when_busy: WhenBusy,
    /// How long a caller may ask to wait with `Prefer: wait`.
    pub max_wait: Duration,
    /// Leases, retention, and what becomes of lapsed claims.
    pub policy: Policy,
    /// What a request meets while the store cannot be reached.
    pub on_store_down: WhenStoreDown,
    /// What becomes of answers, where it differs from the default. Codes come after classes: the
    /// last that fits counts.
    pub store_status: Vec<StatusRule>,
    /// How long the upstream may take to answer.
    pub response_timeout: Duration,
    /// The longest request body, in bytes.
    pub request_body: usize,
    /// The longest response body that is stored, in bytes.
    pub stored_response_body: usize,
    /// Whether answers that only the end of their connection ends are stored.
    pub keep_unframed: bool,
    /// Headers of answers that are not stored, beside those that never are.
    pub drop_headers: Vec<HeaderName>,
    /// Headers of answers that are stored although they would not be.
    pub keep_headers: Vec<HeaderName>,
    /// The headers that are not stored with requests; nothing if requests are not stored, and
    /// operations not driven on without their callers.
    pub complete: Option<Vec<HeaderName>>,
    /// How unknown operations are asked about; nothing if nobody is asked.
    pub probe: Option<ProbeSettings>,
}

/// Where keys come from and how they are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySettings {
    /// Where they come from.
    pub source: KeySource,
    /// Whether a request without one is refused.
    pub required: bool,
    /// How they are written in headers.
    pub syntax: KeySyntax,
    /// The fewest characters.
    pub min: usize,
    /// The most characters.
    pub max: usize,
    /// What they must look like.
    pub format: KeyFormat,
}

/// What a key must look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFormat {
    /// Anything visible.
    Any,
    /// A UUID.
    Uuid,
    /// The whole key must match this. It compiles, also between `^(?:` and `)$`.
    Regex(String),
}

/// What becomes of an operation that was answered with some status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRule {
    /// Which answers.
    pub of: StatusSet,
    /// What becomes of it.
    pub then: OnStatus,
}

/// Which answers a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusSet {
    /// A class: 5 for 5xx.
    Class(u16),
    /// One code.
    Code(u16),
}
