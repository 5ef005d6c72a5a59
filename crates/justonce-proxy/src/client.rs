//! The client behind a request: its address and its scheme.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;

/// The client behind a request: an extension of every request from a listener. It is made once
/// per connection and cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client(Arc<Inner>);

#[derive(Debug, PartialEq, Eq)]
struct Inner {
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
        Self(Arc::new(Inner { address, scheme, forwarded_for }))
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Its scheme.
    #[must_use]
    pub fn scheme(&self) -> ClientScheme {
        self.0.scheme
    }

    /// The value of `X-Forwarded-For`.
    #[must_use]
    pub fn forwarded_for(&self) -> &HeaderValue {
        &self.0.forwarded_for
    }
}

/// Whether a client uses TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientScheme {
    /// Cleartext.
    Http,
    /// TLS.
    Https,
}

impl ClientScheme {
    /// The value of `X-Forwarded-Proto`.
    #[must_use]
    pub fn header(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}
