//! Which requests a route is for: `POST /payments/*`.

use std::borrow::Cow;
use std::fmt;

use http::Method;
use percent_encoding::percent_decode_str;

/// Which requests a route is for: methods and a path.
///
/// The methods are separated by commas; `*` stands for POST and PATCH. In the path `*` and
/// `{name}` stand for one segment, and a `*` at the end for everything below.
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
        let path = path.strip_prefix('/').ok_or(PatternError::Shape)?;
        let last = path.split('/').count();
        let segments = path.split('/').enumerate().map(|(at, part)| match part {
            "*" if at + 1 == last => Segment::Rest,
            "*" => Segment::Any,
            name if name.starts_with('{') && name.ends_with('}') => Segment::Any,
            plain => Segment::Exactly(decoded(plain).into()),
        });
        Ok(Self { methods, segments: segments.collect(), text: text.into() })
    }

    /// Whether a request is meant. Escaped letters in the path count as the letters they are, so
    /// that nobody gets around a route by spelling it differently.
    #[must_use]
    pub fn matches(&self, method: &Method, path: &str) -> bool {
        self.methods.contains(method) && self.matches_path(path)
    }

    fn matches_path(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix('/') else { return false };
        let mut parts = path.split('/');
        for segment in &self.segments {
            let fits = match (segment, parts.next()) {
                (Segment::Exactly(text), Some(part)) => decoded(part) == **text,
                (Segment::Any, Some(part)) => !part.is_empty(),
                (Segment::Rest, Some(part)) => return !part.is_empty() || parts.next().is_some(),
                (_, None) => false,
            };
            if !fits {
                return false;
            }
        }
        parts.next().is_none()
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
        assert!(!matches("POST /a/b", "/a/b/"));
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
