//! The target of a request in one spelling: its path and its host. Pure.
//!
//! Routes are matched, requests compared and services called with the same spelling, so that a
//! request cannot avoid its route by spelling its path differently.

use std::borrow::Cow;
use std::fmt::Write as _;

use http::header::HOST;
use http::{HeaderMap, HeaderValue, request};

/// A normalised path: no dot segments, no repeated slashes, unreserved characters unescaped,
/// other escapes in capitals. A slash at the end stays, since some services distinguish it;
/// comparisons leave it out ([`compared_path`]).
///
/// ```text
/// /x/%2e%2e//p%61yments/   becomes   /payments/   and is compared as   /payments
/// ```
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NormalPath<'a> {
    text: Cow<'a, str>,
    is_ambiguous: bool,
}

impl<'a> NormalPath<'a> {
    /// Normalises a path; `None` if it does not begin with a slash.
    pub(crate) fn of(path: &'a str) -> Option<Self> {
        if !path.starts_with('/') {
            return None;
        }
        if is_normal(path) {
            return Some(Self { text: Cow::Borrowed(path), is_ambiguous: false });
        }
        let mut is_ambiguous = false;
        let mut kept: Vec<String> = Vec::new();
        let mut ends_with_slash = false;
        for segment in path.split('/') {
            let segment = normal_segment(segment, &mut is_ambiguous);
            ends_with_slash = matches!(&*segment, "" | "." | "..");
            match &*segment {
                "" | "." => {}
                ".." => drop(kept.pop()),
                _ => kept.push(segment),
            }
        }
        if ends_with_slash || kept.is_empty() {
            kept.push(String::new());
        }
        Some(Self { text: Cow::Owned(format!("/{}", kept.join("/"))), is_ambiguous })
    }

    /// The path as it is sent to the service.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it has an escaped slash, a backslash or a zero byte, which services interpret
    /// differently: as the end of a segment or path, or as a part of a name.
    pub(crate) const fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }
}

/// A normalised path without the slash at its end.
pub(crate) fn compared_path(path: &str) -> &str {
    path.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(path)
}

/// The segments of a normalised path.
pub(crate) fn segments(path: &str) -> impl Iterator<Item = &str> + Clone {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// Whether a path is normal already, as most are.
fn is_normal(path: &str) -> bool {
    let mut after_slash = false;
    for byte in path.bytes() {
        let odd = matches!(byte, b'%' | b'\\') || !byte.is_ascii();
        if odd || (after_slash && matches!(byte, b'/' | b'.')) {
            return false;
        }
        after_slash = byte == b'/';
    }
    true
}

fn normal_segment(segment: &str, is_ambiguous: &mut bool) -> String {
    let mut text = String::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escape = if *first == b'%' { unescaped(after) } else { None };
        let byte = escape.unwrap_or(*first);
        rest = if escape.is_some() { after.get(2..).unwrap_or_default() } else { after };
        *is_ambiguous |= matches!(byte, b'/' | b'\\' | 0);
        // A `%` that begins no escape must not begin one with what is decoded behind it.
        let is_plain = escape.is_none() && byte.is_ascii() && !matches!(byte, b'\\' | b'%');
        if is_unreserved(byte) || is_plain {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// The byte of two hexadecimal digits.
fn unescaped(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// Whether a byte means the same escaped or not (RFC 3986, section 2.3).
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// A request names two hosts, so two readers could take it for different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TwoHosts;

/// Copies the host of the target into the header `Host` if there is none, so that it is read from
/// one place. HTTP/2 and absolute targets have it in the target.
pub(crate) fn normalise_host(parts: &mut request::Parts) -> Result<(), TwoHosts> {
    let mut lines = parts.headers.get_all(HOST).into_iter();
    let (header, second) = (lines.next(), lines.next());
    if second.is_some() {
        return Err(TwoHosts);
    }
    let Some(authority) = parts.uri.authority() else { return Ok(()) };
    let authority = authority.as_str();
    // User information is no part of the host.
    let target = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let Some(header) = header else {
        let value = HeaderValue::from_str(target).map_err(|_| TwoHosts)?;
        parts.headers.insert(HOST, value);
        return Ok(());
    };
    let header = header.to_str().map_err(|_| TwoHosts)?;
    let port = if parts.uri.scheme_str() == Some("https") { HTTPS } else { HTTP };
    let bare = |host: &str| without_port(host, &[port]).to_ascii_lowercase();
    if bare(header) == bare(target) { Ok(()) } else { Err(TwoHosts) }
}

/// The host as requests are compared by it: in lower case and without a default port.
pub(crate) fn compared_host(headers: &HeaderMap) -> Option<Cow<'_, [u8]>> {
    let host = headers.get(HOST)?.as_bytes();
    let Ok(text) = std::str::from_utf8(host) else { return Some(host.into()) };
    let bare = without_port(text, &[HTTP, HTTPS]);
    if bare.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Some(bare.to_ascii_lowercase().into_bytes().into());
    }
    Some(bare.as_bytes().into())
}

const HTTP: &str = ":80";
const HTTPS: &str = ":443";

fn without_port<'h>(host: &'h str, ports: &[&str]) -> &'h str {
    ports.iter().find_map(|port| host.strip_suffix(port)).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normal(path: &str) -> String {
        NormalPath::of(path).unwrap().as_str().to_owned()
    }

    #[test]
    fn one_path_has_one_spelling() {
        for (sent, one) in [
            ("/", "/"),
            ("//", "/"),
            ("/.", "/"),
            ("/..", "/"),
            ("/a", "/a"),
            ("/a/", "/a/"),
            ("/a//", "/a/"),
            ("/a/.", "/a/"),
            ("/a/b/..", "/a/"),
            ("/a/b/../", "/a/"),
            ("/a/./b", "/a/b"),
            ("/../../a", "/a"),
            ("/a//../b", "/b"),
            ("/%2e%2E/%2e/a", "/a"),
            ("/%61%2D%5f%7E", "/a-_~"),
            ("/caf\u{e9}", "/caf%C3%A9"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/%252e%252e/a", "/%252e%252e/a"),
            ("/.a/..b/c.", "/.a/..b/c."),
            ("/a%2", "/a%252"),
            ("/a%zz%", "/a%25zz%25"),
            ("/x/%2%65%2%65/a", "/x/%252e%252e/a"),
            ("/a;b=1,2:@!$&'()*+", "/a;b=1,2:@!$&'()*+"),
            ("/%3b%2B", "/%3B%2B"),
        ] {
            assert_eq!(normal(sent), one, "{sent}");
        }
        assert_eq!(NormalPath::of(""), None);
        assert_eq!(NormalPath::of("a/b"), None);
        assert_eq!(NormalPath::of("*"), None);
    }

    #[test]
    fn what_is_read_differently_is_told() {
        for path in ["/a%2fb", "/a%2F", "/%5c", "/a\\b", "/%00", "/a/%2f/../b"] {
            assert!(NormalPath::of(path).unwrap().is_ambiguous(), "{path}");
        }
        for path in ["/a", "/a//b", "/%252f", "/a%2eb", "/%2525"] {
            assert!(!NormalPath::of(path).unwrap().is_ambiguous(), "{path}");
        }
    }

    #[test]
    fn a_slash_at_the_end_does_not_count() {
        let compared = |path: &str| compared_path(&normal(path)).to_owned();
        assert_eq!(compared("/a/b/"), "/a/b");
        assert_eq!(compared("/a/b"), "/a/b");
        assert_eq!(compared("//"), "/");
        assert_eq!(segments("/a/b/").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(segments("/").count(), 0);
    }

    /// Paths as strangers write them.
    fn paths() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("/".to_owned()),
            Just(".".to_owned()),
            Just("..".to_owned()),
            Just("\\".to_owned()),
            Just("\u{e9}".to_owned()),
            "%[0-9a-fA-F]{2}",
            "%[0-9a-gA-G]{0,2}",
            "[a-z~;=%-]{1,3}",
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
    }

    fn host_of(target: &str, hosts: &[&str]) -> Result<Option<String>, TwoHosts> {
        let mut request = http::Request::post(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        normalise_host(&mut parts)?;
        let host = compared_host(&parts.headers);
        Ok(host.map(|host| String::from_utf8_lossy(&host).into_owned()))
    }

    #[test]
    fn target_and_header_are_one_thing() {
        let shop = Ok(Some("shop".to_owned()));
        for (target, hosts) in [
            ("/", &["shop"][..]),
            ("/", &["SHOP:443"]),
            ("http://shop/", &[]),
            ("http://ann@shop:80/", &[]),
            ("http://shop/", &["Shop:80"]),
            ("https://shop:443/", &["shop"]),
        ] {
            assert_eq!(host_of(target, hosts), shop, "{target} {hosts:?}");
        }
        assert_eq!(host_of("/", &[]), Ok(None));
        assert_eq!(host_of("/", &["[::1]:8080"]), Ok(Some("[::1]:8080".to_owned())));
        assert_eq!(host_of("/", &[""]), Ok(Some(String::new())));
    }

    #[test]
    fn contradictions_are_told() {
        for (target, hosts) in [
            ("/", &["a", "b"][..]),
            ("/", &["a", "a"]),
            ("http://a/", &["b"]),
            ("http://a/", &[""]),
            ("http://a:81/", &["a"]),
            ("https://a/", &["a:80"]),
        ] {
            assert_eq!(host_of(target, hosts), Err(TwoHosts), "{target} {hosts:?}");
        }
    }

    proptest! {
        #[test]
        fn the_one_spelling_stays_and_is_safe(path in paths()) {
            let first = NormalPath::of(&path).unwrap();
            let one = first.as_str();
            let again = NormalPath::of(one).unwrap();
            prop_assert_eq!(again.as_str(), one);
            prop_assert!(one.starts_with('/') && one.is_ascii());
            prop_assert!(!one.contains("//") && !one.contains('\\'));
            prop_assert!(one.split('/').all(|segment| segment != "." && segment != ".."));
            // Nothing is left that another reader would decode into one of these.
            for hidden in ["%2e", "%2E", "%61", "%7A", "%7a", "%2D", "%2d"] {
                prop_assert!(!one.contains(hidden), "{}", one);
            }
        }

        #[test]
        fn escaping_what_needs_no_escape_changes_nothing(path in "/[a-z0-9/._~-]{0,20}") {
            let escaped: String = path.bytes().map(|byte| match byte {
                b'/' => "/".to_owned(),
                byte => format!("%{byte:02x}"),
            }).collect();
            prop_assert_eq!(normal(&escaped), normal(&path));
        }

        #[test]
        fn detours_change_nothing(path in "(/[a-z]{1,3}){1,4}", detour in "[a-z%.]{1,3}") {
            let around = path.replacen('/', &format!("/{detour}x/../"), 1);
            prop_assert_eq!(&normal(&around), &path);
            prop_assert_eq!(normal(&path.replace('/', "//./")), path);
        }

        #[test]
        fn whatever_is_a_target_can_be_sent_on(path in paths()) {
            if let (Ok(_), Some(one)) = (path.parse::<http::Uri>(), NormalPath::of(&path)) {
                let sent: http::Uri = one.as_str().parse().unwrap();
                prop_assert_eq!(sent.path(), one.as_str());
            }
        }
    }
}
