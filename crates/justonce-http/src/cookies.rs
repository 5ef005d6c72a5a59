//! What a request's `Cookie` lines say. Pure.

use http::HeaderMap;
use http::header::COOKIE;

/// The values of all cookies of a name, in their order. Names are compared letter by letter, and
/// values are taken as they are, quotes too: what a service makes of them is its own affair.
pub(crate) fn named<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h [u8]> {
    let lines = headers.get_all(COOKIE).into_iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (found, value) = pair.split_at(at);
        let value = value.get(1..).unwrap_or_default();
        (found.trim_ascii() == name.as_bytes()).then_some(value.trim_ascii())
    })
}

/// All of them as one text; nothing if the request has none. HTTP/2 may send each in a line of its
/// own, which means the same as one line (RFC 9113, section 8.2.3).
pub(crate) fn whole(headers: &HeaderMap) -> Option<Vec<u8>> {
    let mut lines = headers.get_all(COOKIE).into_iter();
    let mut all = lines.next()?.as_bytes().to_vec();
    for line in lines {
        all.extend_from_slice(b"; ");
        all.extend_from_slice(line.as_bytes());
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(lines: &[&str]) -> HeaderMap {
        let line = |line: &&str| (COOKIE, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        lines.iter().map(line).collect()
    }

    fn of(lines: &[&str], name: &str) -> Vec<String> {
        let headers = headers(lines);
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        named(&headers, name).map(text).collect()
    }

    #[test]
    fn cookies_are_found_by_their_name() {
        assert_eq!(of(&["session=a; theme=b"], "session"), ["a"]);
        assert_eq!(of(&["theme=b;session=a"], "session"), ["a"]);
        assert_eq!(of(&["theme=b", "session = a "], "session"), ["a"]);
        assert_eq!(of(&["session=a=b=="], "session"), ["a=b=="]);
        assert_eq!(of(&["session=\"a\""], "session"), ["\"a\""]);
        assert_eq!(of(&["session="], "session"), [""]);
        assert_eq!(of(&["session=a; x=1", "session=b"], "session"), ["a", "b"]);
    }

    #[test]
    fn what_is_not_there_is_not_empty() {
        let none: [&str; 0] = [];
        assert_eq!(of(&[], "session"), none);
        for line in ["", "session", "Session=a", "xsession=a", "session x=a", "=session", ";;="] {
            assert_eq!(of(&[line], "session"), none, "{line}");
        }
    }

    #[test]
    fn lines_mean_the_same_as_one_line() {
        let of = |lines: &[&str]| whole(&headers(lines));
        assert_eq!(of(&["a=1", "b=2"]), of(&["a=1; b=2"]));
        assert_eq!(of(&[]), None);
        assert_ne!(of(&[""]), None);
    }
}
