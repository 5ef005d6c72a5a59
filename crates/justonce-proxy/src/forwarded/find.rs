//! The client behind trusted proxies.

use std::collections::VecDeque;
use std::net::IpAddr;

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};
use http::uri::Authority;

use super::element::{Element, elements};
use super::node;
use super::trusted::{ForwardedHeader, TrustedProxies};
use super::write::{X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO};
use crate::client::{Client, ClientScheme, Reported};

/// How many proxies there may be between a client and us. Longer chains are taken for a mistake or
/// an attack, and tell no client.
const MAX_HOPS: usize = 32;

/// The client behind a trusted proxy that has connected.
pub(crate) fn find(peer: &Client, trusted: &TrustedProxies, headers: &HeaderMap) -> Client {
    let reported = match trusted.header {
        ForwardedHeader::XForwarded => of_lists(peer, trusted, headers),
        ForwardedHeader::Forwarded => of_elements(peer, trusted, headers),
    };
    peer.reported(reported)
}

/// What `X-Forwarded-For`, `-Proto` and `-Host` say.
fn of_lists(peer: &Client, trusted: &TrustedProxies, headers: &HeaderMap) -> Reported {
    let entries = entries_from_end(headers, &X_FORWARDED_FOR).map(node::address);
    let chain = follow(peer, trusted, entries);
    // Each proxy adds to all three lists. One that only replaces its entry leaves a shorter list:
    // there the first entry counts.
    let same = |name: &HeaderName| entries_from_end(headers, name).take(chain.depth.max(1)).last();
    let scheme = same(&X_FORWARDED_PROTO).and_then(scheme);
    let host = same(&X_FORWARDED_HOST).and_then(host);
    chain.reported(scheme, host)
}

/// What `Forwarded` says.
fn of_elements(peer: &Client, trusted: &TrustedProxies, headers: &HeaderMap) -> Reported {
    let mut last = VecDeque::new();
    for line in headers.get_all(FORWARDED) {
        let read = elements(line.as_bytes(), |element| {
            // One more than can be followed, so that too many are noticed.
            if last.len() > MAX_HOPS {
                last.pop_front();
            }
            last.push_back(element);
        });
        if read.is_err() {
            return follow(peer, trusted, [None].into_iter()).reported(None, None);
        }
    }
    let nodes = last
        .iter()
        .rev()
        .map(|element: &Element<'_>| element.node.as_deref().and_then(node::address));
    let chain = follow(peer, trusted, nodes);
    let told = last.len().checked_sub(chain.depth).and_then(|at| last.get(at));
    let scheme = told.and_then(|element| scheme(element.scheme.as_deref()?));
    let host = told.and_then(|element| host(element.host.as_deref()?));
    chain.reported(scheme, host)
}

/// How far the proxies between us and the client could be followed.
struct Chain {
    /// The client; nothing if the last proxy does not tell an address.
    client: Option<IpAddr>,
    /// The proxies, ours first.
    hops: Vec<IpAddr>,
    /// How many entries were read.
    depth: usize,
}

impl Chain {
    fn reported(self, scheme: Option<ClientScheme>, host: Option<HeaderValue>) -> Reported {
        Reported { client: self.client, hops: self.hops, scheme, host }
    }
}

/// Follows the entries from the last one, as long as they are those of trusted proxies.
fn follow(
    peer: &Client,
    trusted: &TrustedProxies,
    entries: impl Iterator<Item = Option<IpAddr>>,
) -> Chain {
    // A proxy on a Unix socket has no address.
    let hops = peer.peer().map(|peer| peer.ip().to_canonical()).into_iter().collect();
    let mut chain = Chain { client: None, hops, depth: 0 };
    for entry in entries {
        chain.depth += 1;
        match entry {
            Some(address) if !trusted.trusts(address) => {
                chain.client = Some(address);
                return chain;
            }
            Some(address) if chain.hops.len() < MAX_HOPS => chain.hops.push(address),
            _ => return chain,
        }
    }
    // Nobody stands behind the farthest proxy: it is the client itself.
    chain.client = chain.hops.pop();
    chain
}

/// The entries of a list in all lines of a header, from the last one.
fn entries_from_end<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'h [u8]> + use<'h> {
    let lines = headers.get_all(name).iter().rev();
    let entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty())
}

fn scheme(name: &[u8]) -> Option<ClientScheme> {
    let is = |one: &str| name.eq_ignore_ascii_case(one.as_bytes());
    if is("https") || is("wss") {
        return Some(ClientScheme::Https);
    }
    (is("http") || is("ws")).then_some(ClientScheme::Http)
}

/// A host, perhaps with a port; nothing else is passed on.
fn host(name: &[u8]) -> Option<HeaderValue> {
    let authority = Authority::try_from(name).ok()?;
    let is_host = !authority.host().is_empty() && !name.contains(&b'@');
    HeaderValue::from_bytes(name).ok().filter(|_| is_host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUSTED: [&str; 3] = ["10.0.0.0/8", "192.0.2.1", "2001:db8:1::/48"];

    fn trusted(header: ForwardedHeader) -> TrustedProxies {
        let ranges = TRUSTED.iter().map(|range| range.parse().unwrap()).collect();
        TrustedProxies { ranges, header, ..TrustedProxies::default() }
    }

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        };
        lines.iter().map(line).collect()
    }

    fn found(header: ForwardedHeader, lines: &[(&'static str, &str)]) -> Client {
        let peer = Client::new("10.0.0.1:5".parse().unwrap(), ClientScheme::Http);
        find(&peer, &trusted(header), &headers(lines))
    }

    /// The client by `X-Forwarded-For` alone, or `unknown`.
    fn client_of(lines: &[&str]) -> String {
        let lines: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
        let client = found(ForwardedHeader::XForwarded, &lines).address();
        client.map_or("unknown".to_owned(), |address| address.to_string())
    }

    #[test]
    fn the_last_address_that_is_no_trusted_proxy_is_the_client() {
        for (lines, client) in [
            (&["203.0.113.9"][..], "203.0.113.9"),
            (&["203.0.113.9, 10.2.2.2"], "203.0.113.9"),
            (&["203.0.113.9, 10.2.2.2, 192.0.2.1"], "203.0.113.9"),
            // What the client sent before does not count.
            (&["10.9.9.9, 1.1.1.1, 203.0.113.9"], "203.0.113.9"),
            (&["10.9.9.9, 203.0.113.9, 10.2.2.2"], "203.0.113.9"),
            (&["1.1.1.1", "203.0.113.9"], "203.0.113.9"),
            (&["1.1.1.1, 203.0.113.9", "10.2.2.2", "192.0.2.1"], "203.0.113.9"),
            (&["203.0.113.9:4711"], "203.0.113.9"),
            (&["[2001:db8:2::9]:4711, 2001:db8:1::1"], "2001:db8:2::9"),
            (&["2001:db8:2::9"], "2001:db8:2::9"),
            (&["::ffff:203.0.113.9, ::ffff:10.2.2.2"], "203.0.113.9"),
            (&["203.0.113.9,,10.2.2.2, ,"], "203.0.113.9"),
            // All of them are trusted: the farthest one asks for itself.
            (&["10.3.3.3, 10.2.2.2"], "10.3.3.3"),
            (&[], "10.0.0.1"),
            (&["", " ,"], "10.0.0.1"),
        ] {
            assert_eq!(client_of(lines), client, "{lines:?}");
        }
    }

    #[test]
    fn a_proxy_on_a_unix_socket_is_no_hop() {
        let peer = Client::local(ClientScheme::Http);
        let found = |line: &str| {
            let headers = headers(&[("x-forwarded-for", line)]);
            let client = find(&peer, &trusted(ForwardedHeader::XForwarded), &headers);
            (client.address().map(|client| client.to_string()), client.forwarded_for().clone())
        };
        let client = |address: &str| Some(address.to_owned());
        assert_eq!(found("203.0.113.9"), (client("203.0.113.9"), "203.0.113.9".parse().unwrap()));
        let both = "203.0.113.9, 10.2.2.2";
        assert_eq!(found(both), (client("203.0.113.9"), both.parse().unwrap()));
        assert_eq!(found("10.2.2.2"), (client("10.2.2.2"), "10.2.2.2".parse().unwrap()));
        // The proxy asks for itself, or tells no address.
        for line in ["", "unknown"] {
            assert_eq!(found(line), (None, "unknown".parse().unwrap()), "{line:?}");
        }
    }

    #[test]
    fn what_is_no_address_hides_the_client_and_is_never_skipped() {
        for line in [
            "203.0.113.9, unknown",
            "203.0.113.9, _hidden",
            "203.0.113.9, unix:, 10.2.2.2",
            "203.0.113.9, 1.2.3, 10.2.2.2",
            "203.0.113.9, client.example",
            "203.0.113.9; 10.2.2.2",
            "203.0.113.9 10.2.2.2",
        ] {
            assert_eq!(client_of(&[line]), "unknown", "{line}");
        }
        assert_eq!(client_of(&["rubbish, 203.0.113.9"]), "203.0.113.9");
    }

    #[test]
    fn chains_have_a_longest_length_and_lists_may_be_as_long_as_heads() {
        let proxies = |count: usize| vec!["10.1.1.1"; count].join(",");
        assert_eq!(client_of(&[&format!("203.0.113.9,{}", proxies(MAX_HOPS - 1))]), "203.0.113.9");
        assert_eq!(client_of(&[&format!("203.0.113.9,{}", proxies(MAX_HOPS))]), "unknown");
        let forged = format!("{},203.0.113.9", "1.1.1.1,".repeat(8000));
        assert_eq!(client_of(&[&forged]), "203.0.113.9");
        assert_eq!(client_of(&[&",".repeat(60_000)]), "10.0.0.1");
    }

    #[test]
    fn scheme_and_host_are_those_of_the_clients_own_connection() {
        let told = |lines: &[(&'static str, &str)]| {
            let client = found(ForwardedHeader::XForwarded, lines);
            let host = client.host().map(|host| host.to_str().unwrap().to_owned());
            (client.scheme(), host.unwrap_or_default())
        };
        let one = |value| ("x-forwarded-for", value);
        let two = [one("203.0.113.9, 10.2.2.2"), ("x-forwarded-proto", "https, http")];
        assert_eq!(told(&two), (ClientScheme::Https, String::new()));
        // The client wrote the first entry of each.
        let forged = [
            one("1.1.1.1, 203.0.113.9, 10.2.2.2"),
            ("x-forwarded-proto", "https, http, https"),
            ("x-forwarded-host", "forged, shop:8443, inner"),
        ];
        assert_eq!(told(&forged), (ClientScheme::Http, "shop:8443".to_owned()));
        // One that is only replaced.
        let single = [one("203.0.113.9, 10.2.2.2"), ("x-forwarded-proto", "HTTPS")];
        assert_eq!(told(&single).0, ClientScheme::Https);
        for wrong in ["gopher", "https://", ""] {
            let lines = [one("203.0.113.9"), ("x-forwarded-proto", wrong)];
            assert_eq!(told(&lines).0, ClientScheme::Http, "{wrong}");
        }
        for wrong in ["a b", "user@shop", "", "a/b", ":80"] {
            let lines = [one("203.0.113.9"), ("x-forwarded-host", wrong)];
            assert_eq!(told(&lines).1, "", "{wrong}");
        }
    }

    #[test]
    fn only_the_header_that_proxies_write_is_read() {
        let both =
            [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=198.51.100.7;proto=https")];
        let client = found(ForwardedHeader::XForwarded, &both);
        assert_eq!(client.address(), "203.0.113.9".parse().ok());
        assert_eq!(client.scheme(), ClientScheme::Http);
        let client = found(ForwardedHeader::Forwarded, &both);
        assert_eq!(client.address(), "198.51.100.7".parse().ok());
        assert_eq!(client.scheme(), ClientScheme::Https);
    }

    /// Texts that a client may send before what its proxy adds.
    fn sent_before(count: u64) -> impl Iterator<Item = String> {
        const PARTS: [&str; 20] = [
            "for=",
            "6.6.6.6",
            "10.1.1.1",
            "\"",
            "\\",
            ",",
            ";",
            "=",
            " ",
            "proto=http",
            "host=x",
            "[",
            "]",
            ":",
            "unknown",
            "::1",
            "_x",
            "a",
            "\t",
            "\u{e9}",
        ];
        (0..count).map(|seed| {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut next = move || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                usize::try_from(state % 1009).unwrap()
            };
            (0..next() % 9).map(|_| PARTS[next() % PARTS.len()]).collect()
        })
    }

    #[test]
    fn no_client_is_taken_for_another_one() {
        let real = "203.0.113.9".parse().ok();
        for sent in sent_before(20_000) {
            let list = format!("{sent}, 203.0.113.9");
            let two = [("x-forwarded-for", &*sent), ("x-forwarded-for", "203.0.113.9, 10.2.2.2")];
            for lines in [&[("x-forwarded-for", &*list)][..], &two] {
                let found = found(ForwardedHeader::XForwarded, lines).address();
                assert_eq!(found, real, "{sent:?}");
            }
            for added in [
                "for=203.0.113.9",
                "for=203.0.113.9;proto=https;host=\"shop:80\"",
                "for=\"203.0.113.9:47\";host=\"\", for=\"[2001:db8:1::1]\"",
            ] {
                let line = format!("{sent}, {added}");
                let found = found(ForwardedHeader::Forwarded, &[("forwarded", &line)]).address();
                assert!(found.is_none() || found == real, "{line:?}: {found:?}");
            }
        }
    }

    #[test]
    fn elements_are_followed_like_lists() {
        let client = |lines: &[&str]| {
            let lines: Vec<_> = lines.iter().map(|line| ("forwarded", *line)).collect();
            let client = found(ForwardedHeader::Forwarded, &lines);
            let host = client.host().map(|host| host.to_str().unwrap().to_owned());
            let address = client.address().map(|address| address.to_string());
            (address.unwrap_or_default(), client.scheme() == ClientScheme::Https, host)
        };
        let host = |name: &str| Some(name.to_owned());
        assert_eq!(
            client(&[
                "for=1.1.1.1;proto=http;host=forged",
                "for=\"[2001:db8:2::9]:5\";proto=https;host=\"shop:8443\", for=10.2.2.2;proto=http",
            ]),
            ("2001:db8:2::9".to_owned(), true, host("shop:8443"))
        );
        assert_eq!(client(&[]), ("10.0.0.1".to_owned(), false, None));
        for hidden in ["for=_hidden;proto=https", "for=unknown;proto=https", "proto=https"] {
            assert_eq!(client(&[hidden]), (String::new(), true, None), "{hidden}");
        }
        let spoilt = ["for=6.6.6.6, for=\", for=203.0.113.9;proto=https"];
        assert_eq!(client(&spoilt), (String::new(), false, None));
        assert_eq!(client(&["for=\"", "for=203.0.113.9"]).0, "");
        let long = format!("for=203.0.113.9{}", ", for=10.1.1.1".repeat(MAX_HOPS));
        assert_eq!(client(&[&long]).0, "");
        let forged = format!("{} for=203.0.113.9", "for=1.1.1.1,".repeat(5000));
        assert_eq!(client(&[&forged]).0, "203.0.113.9");
    }
}
