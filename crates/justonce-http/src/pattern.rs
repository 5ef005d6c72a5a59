//! Which requests a route is for: `POST /payments/*`.

use std::borrow::Cow;
use std::fmt;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::path::{NormalPath, segments};

/// Which requests a route is for: methods and a path.
///
/// The methods are separated by commas; `*` stands for POST and PATCH. In the path `*` and
/// `{name}` stand for one segment, and a `*` at the end for everything below. However a path is
/// written, it is one path: `/payments/`, `//payments` and `/x/%2e%2e/payments` are `/payments`.
///
/// ```
/// use http::Method;
/// use justonce_http::Pattern;
///
/// let one = Pattern::parse("POST /payments")?;
/// assert!(one.matches(&Method::POST, "/payments"));
///
/// let below = Pattern::parse("POST,PUT /shops/{shop}/orders/*")?;
/// assert!(below.matches(&Method::PUT, "/shops/7/orders/12/refund"));
/// assert!(!below.matches(&Method::PUT, "/shops/7/orders"));
/// # Ok::<(), justonce_http::PatternError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    methods: Vec<Method>,
    segments: Vec<Segment>,
    text: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Exactly(Box<str>),
    Any,
    Rest,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// If it is not `METHODS /path`, or names a method that is never protected.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let mut words = text.split_whitespace();
        let (methods, path) = match (words.next(), words.next(), words.next()) {
            (Some(methods), Some(path), None) => (methods, path),
            _ => return Err(PatternError::Shape),
        };
        let methods = match methods {
            "*" => vec![Method::POST, Method::PATCH],
            list => list.split(',').map(method).collect::<Result<_, _>>()?,
        };
        let path = NormalPath::of(path).ok_or(PatternError::Shape)?;
        let last = segments(path.as_str()).count();
        let segments = segments(path.as_str()).enumerate().map(|(at, part)| match part {
            "*" if at + 1 == last => Segment::Rest,
            "*" => Segment::Any,
            name if name.starts_with('{') && name.ends_with('}') => Segment::Any,
            plain => Segment::Exactly(decoded(plain).into()),
        });
        Ok(Self { methods, segments: segments.collect(), text: text.into() })
    }

    /// Whether a request is meant, however its path is written.
    #[must_use]
    pub fn matches(&self, method: &Method, path: &str) -> bool {
        self.methods.contains(method)
            && NormalPath::of(path).is_some_and(|path| self.matches_normal(path.as_str()))
    }

    /// Whether a path is meant that is in its one spelling.
    pub(crate) fn matches_normal(&self, path: &str) -> bool {
        fits(&self.segments, segments(path), |text, part| decoded(part) == *text)
    }

    /// Whether a path that is not meant looks as if it were: with other segments in front, without
    /// some of the first, or in other letters. So it is if the router is nested below a path, or
    /// the layer lies inside one that is.
    pub(crate) fn is_near(&self, path: &str) -> bool {
        let alike = |text: &str, part: &str| decoded(part).eq_ignore_ascii_case(text);
        let parts = || segments(path);
        let (mine, count) = (self.segments.len(), parts().count());
        let below = (0..count).any(|front| fits(&self.segments, parts().skip(front), alike));
        let inside = (1..mine).any(|front| {
            let rest = self.segments.get(front..).unwrap_or_default();
            names_something(rest) && fits(rest, parts(), alike)
        });
        names_something(&self.segments) && (below || inside)
    }

    /// The methods it is for.
    #[must_use]
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether the parts of a path are what segments ask for.
fn fits<'p>(
    segments: &[Segment],
    mut parts: impl Iterator<Item = &'p str>,
    is: impl Fn(&str, &str) -> bool,
) -> bool {
    for segment in segments {
        let fits = match (segment, parts.next()) {
            (Segment::Exactly(text), Some(part)) => is(text, part),
            (Segment::Any, Some(_)) => true,
            (Segment::Rest, Some(_)) => return true,
            (_, None) => false,
        };
        if !fits {
            return false;
        }
    }
    parts.next().is_none()
}

/// Whether a name is among segments: without one they look like everything.
fn names_something(segments: &[Segment]) -> bool {
    segments.iter().any(|segment| matches!(segment, Segment::Exactly(_)))
}

fn decoded(part: &str) -> Cow<'_, str> {
    if part.contains('%') { percent_decode_str(part).decode_utf8_lossy() } else { part.into() }
}

fn method(name: &str) -> Result<Method, PatternError> {
    match name {
        "POST" | "PATCH" | "PUT" | "DELETE" => {
            Method::from_bytes(name.as_bytes()).map_err(|_| PatternError::Shape)
        }
        other => Err(PatternError::Method(other.into())),
    }
}

/// Why a pattern was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// It is not a list of methods and a path.
    Shape,
    /// This is no method that can be protected.
    Method(Box<str>),
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape => {
                f.write_str("a route is written as methods and a path, as in \"POST /payments/*\"")
            }
            Self::Method(name) => write!(
                f,
                "{name:?} cannot be protected: use POST, PATCH, PUT or DELETE, in capitals, \
                 separated by commas"
            ),
        }
    }
}

impl std::error::Error for PatternError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(&Method::POST, path)
    }

    #[test]
    fn segments_match_as_documented() {
        assert!(matches("POST /a/b", "/a/b"));
        assert!(matches("POST /a/b", "/a/b/"));
        assert!(matches("POST /a/b/", "/a/b"));
        assert!(matches("POST /", "/"));
        assert!(!matches("POST /", "/a"));
        assert!(!matches("POST /a/b", "/a"));
        assert!(matches("* /a/*/c", "/a/b/c"));
        assert!(!matches("* /a/*/c", "/a//c"));
        assert!(matches("POST /*", "/anything/at/all"));
        assert!(!matches("POST /*", "/"));
        assert!(matches("POST /a/*", "/a/b/c"));
        assert!(!matches("PUT /a", "/a"));
    }

    #[test]
    fn spelling_a_path_differently_is_no_way_around() {
        assert!(matches("POST /payments", "/p%61yments"));
        assert!(matches("POST /caf%C3%A9", "/caf%c3%a9"));
        assert!(!matches("POST /a/b", "/a%2Fb"));
        for path in ["//payments", "/./payments", "/x/%2e%2e/payments", "/payments/."] {
            assert!(matches("POST /payments", path), "{path}");
            assert!(matches(&format!("POST {path}"), "/payments"), "{path}");
        }
        assert!(!matches("POST /payments", "payments"));
    }

    #[test]
    fn near_paths_are_those_of_a_nested_router() {
        let near = |pattern: &str, path: &str| Pattern::parse(pattern).unwrap().is_near(path);
        assert!(near("POST /payments", "/api/payments"));
        assert!(near("POST /payments/{id}/refund", "/api/v1/payments/7/refund"));
        assert!(near("POST /api/payments", "/payments"));
        assert!(near("POST /payments", "/Payments"));
        assert!(near("POST /payments/*", "/api/payments/7"));
        assert!(!near("POST /payments", "/orders"));
        assert!(!near("POST /payments", "/payments/7"));
        assert!(!near("POST /shops/{shop}", "/orders"));
        assert!(!near("POST /{shop}", "/api/orders"));
    }

    #[test]
    fn wrong_patterns_are_refused() {
        for wrong in ["", "POST", "POST payments", "POST /a b", "/a"] {
            assert_eq!(Pattern::parse(wrong), Err(PatternError::Shape), "{wrong}");
        }
        assert_eq!(Pattern::parse("GET /a"), Err(PatternError::Method("GET".into())));
        assert_eq!(Pattern::parse("post /a"), Err(PatternError::Method("post".into())));
    }
}
