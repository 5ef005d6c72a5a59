//! The one way in which a path is written. Pure.
//!
//! Routes are matched, requests compared and services called with the same spelling, so that
//! nobody gets around a route by writing its path differently.

use std::borrow::Cow;

/// A path in its one spelling: no dot segments, no repeated slashes, letters, digits and `-._~`
/// as they are, everything else that needs it escaped in capitals. A slash at its end stays, since
/// some services tell it apart; whoever compares leaves it out ([`compared`]).
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
    /// The one spelling of a path; nothing if it does not begin with a slash.
    pub(crate) fn of(path: &'a str) -> Option<Self> {
        if !path.starts_with('/') {
            return None;
        }
        if is_normal(path) {
            return Some(Self { text: Cow::Borrowed(path), is_ambiguous: false });
        }
        let mut is_ambiguous = false;
        let mut kept: Vec<String> = Vec::new();
        let mut ends_open = false;
        for segment in path.split('/') {
            let segment = spelled(segment, &mut is_ambiguous);
            ends_open = matches!(&*segment, "" | "." | "..");
            match &*segment {
                "" | "." => {}
                ".." => drop(kept.pop()),
                _ => kept.push(segment),
            }
        }
        let mut text = String::with_capacity(path.len());
        for segment in &kept {
            text.push('/');
            text.push_str(segment);
        }
        if ends_open || kept.is_empty() {
            text.push('/');
        }
        Some(Self { text: Cow::Owned(text), is_ambiguous })
    }

    /// As the service gets it.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it has an escaped slash, a backslash or a zero byte: what some take for the end of a
    /// segment or of the path, and others for a part of a name.
    pub(crate) const fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }
}

/// A path that is in its one spelling, without the slash at its end.
pub(crate) fn compared(path: &str) -> &str {
    path.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(path)
}

/// The names between the slashes of a path that is in its one spelling.
pub(crate) fn segments(path: &str) -> impl Iterator<Item = &str> + Clone {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// Most paths: nothing has to be looked at twice.
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

fn spelled(segment: &str, is_ambiguous: &mut bool) -> String {
    let mut text = String::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escape = if *first == b'%' { escaped(after) } else { None };
        let byte = escape.unwrap_or(*first);
        rest = if escape.is_some() { after.get(2..).unwrap_or_default() } else { after };
        *is_ambiguous |= matches!(byte, b'/' | b'\\' | 0);
        // A `%` that begins no escape must not begin one together with what is decoded behind it.
        let is_plain = escape.is_none() && byte.is_ascii() && !matches!(byte, b'\\' | b'%');
        if is_unreserved(byte) || is_plain {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The byte that two hexadecimal digits stand for.
fn escaped(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// What means the same escaped or not (RFC 3986, section 2.3).
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
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
        let compared = |path: &str| compared(&normal(path)).to_owned();
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
