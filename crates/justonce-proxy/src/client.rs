//! The client behind a request: its address, its scheme, and what proxies in front have said of it.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;

/// What stands for an address that is not known.
const UNKNOWN: HeaderValue = HeaderValue::from_static("unknown");

/// The client behind a request: an extension of every request from a listener. Without trusted
/// proxies it is made once per connection. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client(Arc<Inner>);

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    // Nothing for a Unix socket.
    peer: Option<SocketAddr>,
    address: Option<IpAddr>,
    scheme: ClientScheme,
    host: Option<HeaderValue>,
    is_reported: bool,
    forwarded_for: HeaderValue,
    // What `Forwarded` says, before and behind the host and the scheme of the request.
    element: Box<str>,
    hops: Box<str>,
}

/// What trusted proxies say about the client of a request.
#[derive(Debug)]
pub(crate) struct Reported {
    /// Its address; nothing if they do not tell one.
    pub(crate) client: Option<IpAddr>,
    /// The proxies, ours first.
    pub(crate) hops: Vec<IpAddr>,
    /// How it connected to the farthest of them.
    pub(crate) scheme: Option<ClientScheme>,
    /// Which host it asked for.
    pub(crate) host: Option<HeaderValue>,
}

impl Client {
    /// A client that has connected itself.
    #[must_use]
    pub fn new(peer: SocketAddr, scheme: ClientScheme) -> Self {
        let client = Some(peer.ip().to_canonical());
        let reported = Reported { client, hops: vec![], scheme: None, host: None };
        Self::made(Some(peer), scheme, false, reported)
    }

    /// A client that has connected over a Unix socket. It has no address, and neither has a proxy
    /// that has.
    #[must_use]
    pub fn local(scheme: ClientScheme) -> Self {
        let reported = Reported { client: None, hops: vec![], scheme: None, host: None };
        Self::made(None, scheme, false, reported)
    }

    /// A client that a proxy in front has connected for, without telling its address.
    #[must_use]
    pub fn hidden_behind(proxy: SocketAddr, scheme: ClientScheme) -> Self {
        let hops = vec![proxy.ip().to_canonical()];
        let reported = Reported { client: None, hops, scheme: None, host: None };
        Self::made(Some(proxy), scheme, false, reported)
    }

    /// The client that trusted proxies have reported on this one's connection.
    pub(crate) fn reported(&self, reported: Reported) -> Self {
        Self::made(self.0.peer, reported.scheme.unwrap_or(self.0.scheme), true, reported)
    }

    fn made(
        peer: Option<SocketAddr>,
        scheme: ClientScheme,
        is_reported: bool,
        reported: Reported,
    ) -> Self {
        let Reported { client, hops, host, .. } = reported;
        // Ours comes last in the lists.
        let all: Vec<IpAddr> = client.iter().chain(hops.iter().rev()).copied().collect();
        let list: Vec<String> = all.iter().map(ToString::to_string).collect();
        let forwarded_for = match &list[..] {
            [] => Ok(UNKNOWN),
            list => HeaderValue::from_maybe_shared(Bytes::from(list.join(", "))),
        };
        let behind = hops.iter().rev().fold(String::new(), |mut text, hop| {
            // Writing to a text cannot fail.
            let _ = write!(text, ", for={}", node(Some(*hop)));
            text
        });
        Self(Arc::new(Inner {
            peer,
            address: client,
            scheme,
            host,
            is_reported,
            forwarded_for: forwarded_for.unwrap_or(UNKNOWN),
            element: format!("for={}", node(client)).into(),
            hops: behind.into(),
        }))
    }

    /// Where the connection comes from: the client, or the last proxy in front; nothing for a Unix
    /// socket.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.0.peer
    }

    /// Its address; nothing if a trusted proxy does not tell it, or it has none.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.0.address
    }

    /// Its scheme.
    #[must_use]
    pub fn scheme(&self) -> ClientScheme {
        self.0.scheme
    }

    /// The host that it asked for, if a trusted proxy says that this was another one.
    #[must_use]
    pub fn host(&self) -> Option<&HeaderValue> {
        self.0.host.as_ref()
    }

    /// Whether a trusted proxy has reported it.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        self.0.is_reported
    }

    /// The value of `X-Forwarded-For`: the client, and the trusted proxies between it and us.
    #[must_use]
    pub fn forwarded_for(&self) -> &HeaderValue {
        &self.0.forwarded_for
    }

    /// The value of `Forwarded` before and behind the host and the scheme.
    pub(crate) fn forwarded(&self) -> (&str, &str) {
        (&self.0.element, &self.0.hops)
    }
}

/// An address as `Forwarded` has it.
fn node(address: Option<IpAddr>) -> String {
    match address {
        None => "unknown".to_owned(),
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => format!("\"[{address}]\""),
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
        HeaderValue::from_static(self.as_str())
    }

    /// Its name in small letters.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}
