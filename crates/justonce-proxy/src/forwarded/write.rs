//! What the upstream is told about the client.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue};

use super::element::is_token;
use crate::client::Client;

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(super) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// What the names of all such headers begin with.
const PREFIX: &str = "x-forwarded-";
/// What else services take for the client.
const OTHERS: [&str; 2] = ["forwarded", "x-real-ip"];

/// Sets the headers about the client, and removes those that nobody who is trusted has set.
pub(crate) fn write(headers: &mut HeaderMap, client: &Client) {
    remove(headers, client.is_reported());
    headers.insert(X_FORWARDED_FOR, client.forwarded_for().clone());
    headers.insert(X_FORWARDED_PROTO, client.scheme().header());
    let host = client.host().or(headers.get(HOST)).cloned();
    if let Ok(value) = HeaderValue::from_maybe_shared(forwarded(client, host.as_ref())) {
        headers.insert(FORWARDED, value);
    }
    match host {
        Some(host) => headers.insert(X_FORWARDED_HOST, host),
        None => headers.remove(X_FORWARDED_HOST),
    };
}

/// Removes everything about the client from a request's trailers: some services read them as
/// headers.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap) {
    remove(trailers, false);
}

fn remove(headers: &mut HeaderMap, keeps_others: bool) {
    let goes = |name: &&HeaderName| {
        let is_other = || keeps_others && !name.as_str().contains('_') && !is_set_here(name);
        is_about_clients(name) && !is_other()
    };
    // Most requests have none, and then nothing is allocated.
    let names: Vec<HeaderName> = headers.keys().filter(goes).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

fn is_set_here(name: &HeaderName) -> bool {
    [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, FORWARDED].contains(name)
}

/// Whether services may take a header for something about the client. CGI-like servers do not
/// distinguish `-` from `_`.
fn is_about_clients(name: &HeaderName) -> bool {
    let name = name.as_str();
    if !name.starts_with(['x', 'f']) {
        return false;
    }
    let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let begins = |start: &str| {
        let mut bytes = name.bytes().map(dashed);
        start.bytes().all(|byte| bytes.next() == Some(byte))
    };
    begins(PREFIX) || OTHERS.iter().any(|other| name.len() == other.len() && begins(other))
}

/// The client with the host and the scheme that it used, and the proxies behind it.
fn forwarded(client: &Client, host: Option<&HeaderValue>) -> Bytes {
    const HOST_BYTES: &[u8] = b";host=";
    const SCHEME_BYTES: &[u8] = b";proto=";
    let (element, hops) = client.forwarded();
    let (scheme, host) = (client.scheme().as_str(), host.map_or(&b""[..], HeaderValue::as_bytes));
    let mut value = BytesMut::with_capacity(
        element.len()
            + HOST_BYTES.len()
            + host.len()
            + 8
            + SCHEME_BYTES.len()
            + scheme.len()
            + hops.len(),
    );
    value.put_slice(element.as_bytes());
    if !host.is_empty() {
        value.put_slice(HOST_BYTES);
        put_value(&mut value, host);
    }
    value.put_slice(SCHEME_BYTES);
    value.put_slice(scheme.as_bytes());
    value.put_slice(hops.as_bytes());
    value.freeze()
}

/// A token, or a quoted string.
fn put_value(value: &mut BytesMut, text: &[u8]) {
    if text.iter().copied().all(is_token) {
        return value.put_slice(text);
    }
    value.put_u8(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            value.put_u8(b'\\');
        }
        value.put_u8(*byte);
    }
    value.put_u8(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{ClientScheme, Reported};

    fn written(client: &Client, lines: &[(&'static str, &'static str)]) -> Vec<String> {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let mut headers: HeaderMap = lines.iter().map(line).collect();
        write(&mut headers, client);
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        let mut lines: Vec<_> = headers.iter().map(line).collect();
        lines.sort();
        lines
    }

    const FORGED: [(&str, &str); 13] = [
        ("forwarded", "for=6.6.6.6"),
        ("x-forwarded-for", "6.6.6.6"),
        ("x-forwarded-for", "7.7.7.7"),
        ("x_forwarded_for", "6.6.6.6"),
        ("x-forwarded_host", "forged"),
        ("x-forwarded-host", "forged"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-port", "1"),
        ("x-forwarded-prefix", "/admin"),
        ("x-real-ip", "6.6.6.6"),
        ("x_real_ip", "6.6.6.6"),
        ("x-real-ips", "kept"),
        ("x-for", "kept"),
    ];

    #[test]
    fn what_nobody_is_trusted_for_is_replaced_and_never_appended_to() {
        let client = Client::new("203.0.113.9:5".parse().unwrap(), ClientScheme::Http);
        let lines = [&[("host", "shop:8080")], &FORGED[..]].concat();
        assert_eq!(
            written(&client, &lines),
            [
                "forwarded: for=203.0.113.9;host=\"shop:8080\";proto=http",
                "host: shop:8080",
                "x-for: kept",
                "x-forwarded-for: 203.0.113.9",
                "x-forwarded-host: shop:8080",
                "x-forwarded-proto: http",
                "x-real-ips: kept",
            ]
        );
    }

    #[test]
    fn what_trusted_proxies_say_is_passed_on_without_what_the_client_said() {
        let peer = Client::new("10.0.0.1:5".parse().unwrap(), ClientScheme::Http);
        let client = peer.reported(Reported {
            client: "2001:db8::9".parse().ok(),
            hops: vec!["10.0.0.1".parse().unwrap(), "2001:db8:1::1".parse().unwrap()],
            scheme: Some(ClientScheme::Https),
            host: Some(HeaderValue::from_static("shop")),
        });
        let lines = [&[("host", "inner:80")], &FORGED[..]].concat();
        assert_eq!(
            written(&client, &lines),
            [
                "forwarded: for=\"[2001:db8::9]\";host=shop;proto=https, \
                 for=\"[2001:db8:1::1]\", for=10.0.0.1",
                "host: inner:80",
                "x-for: kept",
                "x-forwarded-for: 2001:db8::9, 2001:db8:1::1, 10.0.0.1",
                "x-forwarded-host: shop",
                "x-forwarded-port: 1",
                "x-forwarded-prefix: /admin",
                "x-forwarded-proto: https",
                "x-real-ip: 6.6.6.6",
                "x-real-ips: kept",
            ]
        );
    }

    #[test]
    fn a_client_that_is_not_told_is_unknown() {
        let peer = "10.0.0.1:5".parse().unwrap();
        let client = Client::hidden_behind(peer, ClientScheme::Http);
        assert_eq!(client.address(), None);
        assert_eq!(
            written(&client, &[]),
            [
                "forwarded: for=unknown;proto=http, for=10.0.0.1",
                "x-forwarded-for: 10.0.0.1",
                "x-forwarded-proto: http",
            ]
        );
    }

    #[test]
    fn ipv4_is_ipv4_on_every_socket() {
        let client = Client::new("[::ffff:203.0.113.9]:5".parse().unwrap(), ClientScheme::Http);
        assert_eq!(client.forwarded_for(), "203.0.113.9");
        assert_eq!(client.address(), "203.0.113.9".parse().ok());
    }
}
