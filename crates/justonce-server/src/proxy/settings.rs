//! What can be set about the upstream side.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{BreakerSettings, UpstreamAddress};

/// How long a connection may stay unused: below the 5 s after which many servers close theirs.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// How many unused connections are kept for one upstream.
pub(super) const MAX_IDLE: usize = 256;
/// How many headers an answer may have.
pub const MAX_RESPONSE_HEADERS: usize = 512;
/// How many connections there are to one upstream at most.
pub(super) const MAX_CONNECTIONS: usize = 1024;
/// How many requests may wait for a connection of one upstream.
pub(super) const MAX_WAITING: usize = 4096;
/// How long name lookup, connecting and the TLS handshake may take together.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an upstream may be silent before its answer begins.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an upstream may be silent inside its answer.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// What can be set about the upstream side.
///
/// ```
/// use std::time::Duration;
/// use justonce_server::proxy::{Proxy, ProxySettings, UpstreamAddress};
///
/// let upstream = UpstreamAddress::parse("http://127.0.0.1:9000")?;
/// // The defaults.
/// let proxy = Proxy::new(ProxySettings::to([upstream.clone()]))?;
/// // A patient one.
/// let mut settings = ProxySettings::to([upstream]);
/// settings.response_timeout = Duration::from_secs(300);
/// let patient = Proxy::new(settings)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// Where requests go. At least one.
    pub upstreams: Vec<UpstreamAddress>,
    /// How many unused connections are kept for each upstream.
    pub max_idle: usize,
    /// How long a connection may stay unused.
    pub idle_timeout: Duration,
    /// How many connections each upstream gets at most.
    pub max_connections: usize,
    /// How long reaching an upstream may take.
    pub connect_timeout: Duration,
    /// How long an upstream may be silent before its answer begins.
    pub response_timeout: Duration,
    /// How long an upstream may be silent inside its answer.
    pub read_timeout: Duration,
    /// Which host upstreams are told.
    pub host: HostHeader,
    /// Whether `Via: 1.1 justonce` is added, both ways.
    pub via: bool,
    /// Whether 502, 503 and 504 answers count as failures of the upstream.
    pub gateway_errors_count: bool,
    /// When an upstream is left alone.
    pub breaker: BreakerSettings,
    /// A PEM file with authorities to trust besides those of the system.
    pub ca_file: Option<PathBuf>,
}

impl ProxySettings {
    /// The defaults for these upstreams.
    #[must_use]
    pub fn to(upstreams: impl IntoIterator<Item = UpstreamAddress>) -> Self {
        Self {
            upstreams: upstreams.into_iter().collect(),
            max_idle: MAX_IDLE,
            idle_timeout: IDLE_TIMEOUT,
            max_connections: MAX_CONNECTIONS,
            connect_timeout: CONNECT_TIMEOUT,
            response_timeout: RESPONSE_TIMEOUT,
            read_timeout: READ_TIMEOUT,
            host: HostHeader::Client,
            via: false,
            gateway_errors_count: false,
            breaker: BreakerSettings::default(),
            ca_file: None,
        }
    }
}

/// Which host upstreams are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// The one the client asked for.
    #[default]
    Client,
    /// The one in the upstream's own address.
    Upstream,
}

/// As an extension of a request: how long its upstream may be silent before its answer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseTimeout(pub Duration);

/// Why settings were refused.
#[derive(Debug)]
pub enum SettingsError {
    /// There is no upstream.
    NoUpstream,
    /// The file of authorities cannot be used.
    Authorities(PathBuf, Box<str>),
    /// TLS cannot be set up.
    Tls(Box<str>),
}

impl SettingsError {
    pub(crate) fn authorities(path: &Path, why: impl fmt::Display) -> Self {
        Self::Authorities(path.into(), why.to_string().into())
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUpstream => f.write_str("there must be at least one upstream"),
            Self::Authorities(path, why) => {
                write!(f, "the authorities in {} cannot be used: {why}", path.display())
            }
            Self::Tls(why) => write!(f, "TLS to the upstream cannot be set up: {why}"),
        }
    }
}

impl std::error::Error for SettingsError {}
