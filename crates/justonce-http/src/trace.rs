//! Trace context (W3C): which trace a request belongs to.

use std::fmt;
use std::num::NonZeroU128;

use http::{HeaderMap, HeaderName};

/// `traceparent`.
pub(crate) const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
/// The length of a value of version 00, and of what later versions begin with.
const PARENT_BYTES: usize = 55;

/// The trace that a request belongs to, by its `traceparent`.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use justonce_http::TraceId;
///
/// let mut headers = HeaderMap::new();
/// let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// headers.insert("traceparent", HeaderValue::from_static(parent));
/// let id = TraceId::of(&headers).unwrap();
/// assert_eq!(id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(NonZeroU128);

impl TraceId {
    /// The trace of a request; nothing without exactly one valid `traceparent`.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(&TRACE_PARENT).iter();
        let line = lines.next()?.as_bytes();
        if lines.next().is_some() {
            return None;
        }
        Self::of_parent(line)
    }

    /// The trace that a value of `traceparent` names, if it is valid.
    fn of_parent(value: &[u8]) -> Option<Self> {
        let (parent, more) = value.split_at_checked(PARENT_BYTES)?;
        let mut parts = parent.split(|byte| *byte == b'-');
        let mut hex = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            let text = std::str::from_utf8(part).ok().filter(|_| part.iter().all(is_hex))?;
            u128::from_str_radix(text, 16).ok()
        };
        let (version, trace, span, _) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        let fits = match version {
            0 => more.is_empty(),
            0xff => false,
            // Later versions may add parts.
            _ => more.is_empty() || more.starts_with(b"-"),
        };
        NonZeroU128::new(trace).filter(|_| fits && span != 0).map(Self)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(value: &str) -> Option<String> {
        TraceId::of_parent(value.as_bytes()).map(|id| id.to_string())
    }

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    #[test]
    fn valid_parents_name_their_trace() {
        for value in [
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-else",
        ] {
            assert_eq!(of(value).as_deref(), Some(TRACE), "{value}");
        }
        let small = "00-00000000000000000000000000000001-0000000000000001-00";
        assert_eq!(of(small).as_deref(), Some("00000000000000000000000000000001"));
    }

    #[test]
    fn all_others_name_none() {
        for value in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 ",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b71692033310-01",
            "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(of(value), None, "{value}");
        }
    }

    #[test]
    fn two_parents_are_none() {
        let value =
            HeaderValue::from_static("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
        let mut headers = HeaderMap::new();
        assert_eq!(TraceId::of(&headers), None);
        headers.append(TRACE_PARENT, value.clone());
        assert!(TraceId::of(&headers).is_some());
        headers.append(TRACE_PARENT, value);
        assert_eq!(TraceId::of(&headers), None);
    }
}
