//! Which proxies in front are trusted.

use std::net::IpAddr;

use justonce_net::AddressRange;

use crate::client::Client;

/// The header in which trusted proxies tell who connected to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`, with `X-Forwarded-Proto` and `X-Forwarded-Host`.
    #[default]
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// The proxies in front that are trusted to name the client.
///
/// ```
/// use justonce_proxy::{ForwardedHeader, TrustedProxies};
///
/// // The default: none is trusted.
/// let none = TrustedProxies::default();
///
/// // Customised: load balancers in one network, which write `Forwarded`.
/// let balancers = TrustedProxies {
///     ranges: vec!["10.0.0.0/8".parse()?],
///     header: ForwardedHeader::Forwarded,
///     ..TrustedProxies::default()
/// };
/// assert!(balancers.trusts("10.0.0.7".parse()?) && !none.trusts("10.0.0.7".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Their addresses.
    pub ranges: Vec<AddressRange>,
    /// Whether whoever connects over a Unix socket is one of them.
    pub unix: bool,
    /// The header that they write. The other one is not read: they may pass on what a client wrote
    /// there.
    pub header: ForwardedHeader,
    /// Whether each connection must come from one of them and begin with a PROXY protocol header,
    /// version 1 or 2.
    pub proxy_protocol: bool,
}

impl TrustedProxies {
    /// Whether an address is that of a trusted proxy.
    #[must_use]
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }

    /// Whether the word of whoever has connected counts.
    pub(crate) fn trust(&self, peer: &Client) -> bool {
        match (peer.peer(), peer.address()) {
            (None, None) => self.unix,
            (_, address) => address.is_some_and(|address| self.trusts(address)),
        }
    }
}
