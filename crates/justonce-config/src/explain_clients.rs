//! Who the client of a request is, in plain words, for `justonce check`.

use super::identity::is_by_address;
use super::settings::{Proxies, ProxyHeader, RouteSettings, Settings};
use super::words::list;

/// Who is taken for the client.
pub(super) fn proxies_words(proxies: &Proxies) -> String {
    if proxies.trusted.is_empty() && !proxies.unix {
        return "No proxy in front is trusted: the client of a request is whoever connects, and \
                what it says about other addresses is replaced."
            .to_owned();
    }
    let header = match proxies.header {
        ProxyHeader::XForwarded => "X-Forwarded-For",
        ProxyHeader::Forwarded => "Forwarded",
    };
    let protocol = if proxies.proxy_protocol {
        " Every connection must come from one of them and begin with a PROXY protocol header."
    } else {
        ""
    };
    let mut who: Vec<String> = proxies.trusted.iter().map(ToString::to_string).collect();
    who.extend(proxies.unix.then(|| "the Unix socket".to_owned()));
    format!(
        "Proxies at {} are trusted: the client of a request from them is the last address in \
         `{header}` that is none of theirs. What others say is replaced.{protocol}",
        list(&who)
    )
}

/// Whose address tells callers apart, if one does.
pub(super) fn address_words(route: &RouteSettings, settings: &Settings) -> &'static str {
    let Settings { listen, proxies, .. } = settings;
    if !is_by_address(route) {
        return "";
    }
    if proxies.unix {
        return "The address is the one that the proxy on the Unix socket tells.";
    }
    if listen.ip().is_none() {
        return "Nobody who connects over a Unix socket has an address.";
    }
    match proxies.trusted.is_empty() {
        true => {
            "The address is that of the connection, since no proxy is trusted: behind a proxy all \
             callers have the same, and get each other's outcomes."
        }
        false => "The address is the one that trusted proxies tell.",
    }
}
