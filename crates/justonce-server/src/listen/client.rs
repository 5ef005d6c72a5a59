//! Who asked, and how.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;

/// Who asked, and how: an extension of every request from a listener. Made once a connection,
/// cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client(Arc<About>);

#[derive(Debug, PartialEq, Eq)]
struct About {
    address: SocketAddr,
    scheme: ClientScheme,
    forwarded_for: HeaderValue,
}

impl Client {
    /// A client at an address.
    #[must_use]
    pub fn new(address: SocketAddr, scheme: ClientScheme) -> Self {
        let ip = address.ip().to_canonical().to_string();
        let forwarded_for =
            HeaderValue::from_str(&ip).unwrap_or(HeaderValue::from_static("unknown"));
        Self(Arc::new(About { address, scheme, forwarded_for }))
    }

    /// From where.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// How.
    #[must_use]
    pub fn scheme(&self) -> ClientScheme {
        self.0.scheme
    }

    /// The address as `X-Forwarded-For` has it.
    #[must_use]
    pub fn forwarded_for(&self) -> &HeaderValue {
        &self.0.forwarded_for
    }
}

/// Whether a client came through TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientScheme {
    /// In clear.
    Http,
    /// Through TLS.
    Https,
}

impl ClientScheme {
    /// As `X-Forwarded-Proto` has it.
    #[must_use]
    pub fn header(self) -> HeaderValue {
        match self {
            Self::Http => HeaderValue::from_static("http"),
            Self::Https => HeaderValue::from_static("https"),
        }
    }
}
