//! The trusted proxies in front of the gateway.

use justonce_net::{AddressRange, AddressRangeError};

use crate::declare::settings;
use crate::invalid::{Invalid, Read};
use crate::kind::{choice, flag, one_or_more, repeated, text};
use crate::report::Report;
use crate::tree::Node;

settings! {
    /// Proxies in front of the gateway.
    pub struct Proxies from ProxiesLayer {
        /// Addresses and networks of the proxies in front that are trusted to name the client;
        /// without them the client is whoever connects
        /// ([more](operating.md#behind-a-proxy)).
        trusted: Vec<AddressRange> = one_or_more(range),
            default "", example "10.0.0.0/8, 2001:db8::7";
        /// Whether whoever connects over the Unix socket in `listen` is a trusted proxy.
        unix: bool = flag(), default "false", example "true";
        /// The header in which they say it: `x-forwarded-for`, with `x-forwarded-proto` and
        /// `x-forwarded-host`, or `forwarded`. The other one is not read.
        header: ProxyHeader = choice(&[
                ("x-forwarded-for", ProxyHeader::XForwarded),
                ("forwarded", ProxyHeader::Forwarded),
            ]),
            default "x-forwarded-for", example "forwarded";
        /// Whether each connection must come from a trusted proxy and begin with a PROXY protocol
        /// header, version 1 or 2; others are closed. The header has `timeouts.header` to come.
        proxy_protocol: bool = flag(), default "false", example "true";
    }
}

/// The header in which trusted proxies say who their clients are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// `X-Forwarded-For`, with `-Proto` and `-Host`.
    XForwarded,
    /// `Forwarded`.
    Forwarded,
}

/// An address or a network.
fn range(node: &Node) -> Read<AddressRange> {
    let found = text(node)?.trim();
    AddressRange::parse(found).map_err(|why| {
        let help = match why {
            AddressRangeError::Host(range) => Some(format!("did you mean \"{range}\"?")),
            _ => None,
        };
        Invalid::at(node, format!("{why}, found {}", repeated(found))).help(help)
    })
}

/// The PROXY protocol is spoken by those who are trusted, and who can connect.
pub(super) fn check(proxies: &ProxiesLayer, listens_on_unix: bool, report: &mut Report) {
    let (Some(trusted), Some(unix), Some(protocol)) =
        (&proxies.trusted, &proxies.unix, &proxies.proxy_protocol)
    else {
        return;
    };
    if unix.value && !listens_on_unix {
        let message = "`proxies.unix`: `listen` is no Unix socket".to_owned();
        report.at(&unix.origin, message, None);
    }
    let (is_possible, setting) = match listens_on_unix {
        true => (unix.value, "set `proxies.unix`"),
        false => (!trusted.value.is_empty(), "name the proxies in `proxies.trusted`"),
    };
    if protocol.value && !is_possible {
        let message = "`proxies.proxy_protocol`: no proxy is trusted, so every connection would be \
                       closed";
        report.at(&protocol.origin, message.to_owned(), Some(setting.to_owned()));
    }
}
