//! The settings of the upstream side.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use justonce_net::CertificateFileError;
use thiserror::Error;

use super::address::UpstreamAddress;
use super::breaker::BreakerSettings;
use super::health::HealthCheck;
use super::selection::Balance;
use super::tls::UpstreamTls;

/// How many idle connections are kept for one upstream.
const MAX_IDLE: usize = 256;
/// How many connections there are to one upstream at most.
const MAX_CONNECTIONS: usize = 1024;
/// How long an upstream may pause inside a response, at least.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How many headers a response may have.
pub const MAX_RESPONSE_HEADERS: usize = 512;

/// The settings of a [`Proxy`](crate::Proxy).
///
/// ```
/// use std::time::Duration;
/// use justonce_proxy::{HostHeader, Proxy, ProxySettings, ProxyTimeouts, UpstreamAddress};
///
/// let upstream = UpstreamAddress::parse("http://127.0.0.1:9000")?;
/// let timeouts = ProxyTimeouts {
///     connect: Duration::from_secs(2),
///     response: Duration::from_secs(30),
///     idle: Duration::from_secs(4),
/// };
/// let mut settings = ProxySettings::new([upstream], timeouts);
/// let proxy = Proxy::new(settings.clone())?;
/// // With the host name of the upstream.
/// settings.host = HostHeader::Upstream;
/// let custom = Proxy::new(settings)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// The upstreams, at least one.
    pub upstreams: Vec<UpstreamAddress>,
    /// The timeouts that the configuration sets.
    pub timeouts: ProxyTimeouts,
    /// How long an upstream may pause inside a response.
    pub read_timeout: Duration,
    /// How many idle connections are kept for each upstream.
    pub max_idle: usize,
    /// How many connections each upstream gets at most.
    pub max_connections: usize,
    /// Which of the upstreams gets a request.
    pub balance: Balance,
    /// The `Host` header of requests.
    pub host: HostHeader,
    /// Whether `Via: 1.1 justonce` is added, both ways.
    pub via: bool,
    /// Whether 502, 503 and 504 responses count as failures of the upstream.
    pub gateway_errors_count: bool,
    /// When the breaker of an upstream opens; never if there is none.
    pub breaker: Option<BreakerSettings>,
    /// What is spoken with the upstreams.
    pub protocol: Protocol,
    /// How the upstreams are checked; not at all if there is nothing.
    pub health: Option<HealthCheck>,
    /// TLS to upstreams with `https`.
    pub tls: UpstreamTls,
}

/// The timeouts of a [`Proxy`](crate::Proxy). Their defaults are those of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyTimeouts {
    /// How long name lookup, connecting and the TLS handshake may take together.
    pub connect: Duration,
    /// How long an upstream may take until its response begins.
    pub response: Duration,
    /// How long a connection may be idle before it is closed.
    pub idle: Duration,
}

impl ProxySettings {
    /// Settings for these upstreams, without a breaker. An upstream may pause inside a response for
    /// a minute, or for the response timeout if that is longer.
    #[must_use]
    pub fn new(
        upstreams: impl IntoIterator<Item = UpstreamAddress>,
        timeouts: ProxyTimeouts,
    ) -> Self {
        Self {
            upstreams: upstreams.into_iter().collect(),
            timeouts,
            read_timeout: READ_TIMEOUT.max(timeouts.response),
            max_idle: MAX_IDLE,
            max_connections: MAX_CONNECTIONS,
            balance: Balance::LeastLoaded,
            host: HostHeader::Client,
            via: false,
            gateway_errors_count: false,
            breaker: None,
            protocol: Protocol::Http1,
            health: None,
            tls: UpstreamTls::default(),
        }
    }
}

/// The `Host` header of requests to upstreams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// The one of the client's request.
    #[default]
    Client,
    /// The host in the upstream's address.
    Upstream,
    /// This one.
    Name(HeaderValue),
}

/// What is spoken with upstreams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: with TLS by ALPN, and in clear at once (prior knowledge). No other protocol can be
    /// switched to.
    Http2,
}

impl Protocol {
    /// Its name for ALPN.
    pub(super) const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// The response timeout of one request, as an extension of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseTimeout(pub Duration);

/// Why settings were refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// There is no upstream.
    #[error("there must be at least one upstream")]
    NoUpstream,
    /// The file of trust roots cannot be used.
    #[error("the authorities in {path} cannot be used: {1}", path = .0.display())]
    Authorities(PathBuf, CertificateFileError),
    /// The client certificate or its key cannot be used.
    #[error("the client certificate cannot be used: {path}: {1}", path = .0.display())]
    Identity(PathBuf, CertificateFileError),
    /// This is no name that a certificate could carry.
    #[error("{0:?} is no name for TLS")]
    ServerName(String),
    /// TLS cannot be set up.
    #[error("TLS to the upstream cannot be set up: {0}")]
    Tls(rustls::Error),
}
