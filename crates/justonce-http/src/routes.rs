//! Routes: which requests they match, and what is kept for each.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderValue, Method, Response};
use justonce_core::ScopeError;
use percent_encoding::percent_decode_str;

use crate::caller::{Caller, RequestHead, Scopes};
use crate::headers::LIFETIME;
use crate::meters::Meters;
use crate::rule::{KeyPresence, Rule};
use crate::target::{NormalPath, segments};

/// The name of the route for requests that no other route matches.
pub(crate) const DEFAULT_NAME: &str = "default";

/// A rule and the requests that it applies to.
#[derive(Debug)]
pub(crate) struct Route {
    /// Its name in scopes, metrics and logs.
    pub(crate) name: Box<str>,
    matcher: Matcher,
    pub(crate) rule: Rule,
    lifetime: HeaderValue,
    pub(crate) meters: Meters,
    scopes: Scopes,
    /// Whether a request has matched.
    is_used: AtomicBool,
    /// Whether a near miss has been logged.
    is_near_miss_logged: AtomicBool,
}

/// Which requests a route matches, of those that can be protected.
#[derive(Debug)]
pub(crate) enum Matcher {
    Pattern(Pattern),
    PostAndPatch,
    All,
}

impl Route {
    pub(crate) fn new(name: &str, matcher: Matcher, rule: Rule) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            matcher,
            lifetime: HeaderValue::from(rule.policy.retention().as_secs()),
            meters: Meters::of(name, rule.has_claims()),
            rule,
            scopes: Scopes::default(),
            is_used: AtomicBool::new(false),
            is_near_miss_logged: AtomicBool::new(false),
        })
    }

    pub(crate) fn caller(&self, head: &RequestHead<'_>) -> Result<Caller, ScopeError> {
        self.scopes.of(&self.rule, &self.name, head)
    }

    /// Whether keys of this route are read at all.
    pub(crate) fn is_protected(&self) -> bool {
        self.rule.key_presence != KeyPresence::Off
    }

    /// Adds the header that says how long responses of this route are replayed.
    pub(crate) fn with_lifetime<B>(&self, mut response: Response<B>) -> Response<B> {
        response.headers_mut().insert(LIFETIME, self.lifetime.clone());
        response
    }

    /// Adds to a response what a page of another origin needs to read it, if the route says so.
    pub(crate) fn add_cors<B>(&self, response: &mut Response<B>, origin: Option<&HeaderValue>) {
        if let Some(cors) = &self.rule.cors {
            cors.add_to(response, origin);
        }
    }

    fn matches(&self, method: &Method, path: &NormalPath<'_>) -> bool {
        match &self.matcher {
            Matcher::Pattern(pattern) => pattern.matches_normal(method, path.as_str()),
            Matcher::PostAndPatch => *method == Method::POST || *method == Method::PATCH,
            Matcher::All => true,
        }
    }

    /// Counts a request that looks like this route's and matched another one, as long as this route
    /// has matched none.
    fn note_miss(&self, method: &Method, path: &NormalPath<'_>) {
        let Matcher::Pattern(pattern) = &self.matcher else { return };
        if self.is_used.load(Ordering::Relaxed)
            || !pattern.methods().contains(method)
            || !pattern.is_near(path.as_str())
        {
            return;
        }
        self.meters.near_misses.increment(1);
        if !self.is_near_miss_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "justonce::route",
                route = &*self.name, %pattern, path = path.as_str(),
                "no request has matched this route, and one that looks like it fell under another \
                 rule: is the router nested below a path?"
            );
        }
    }
}

/// The route that a request matched, as an extension of the request.
#[derive(Clone, Debug)]
pub struct MatchedRoute(pub(crate) Arc<Route>);

impl MatchedRoute {
    /// The route's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

/// All routes in order, the last for all remaining requests. The first match counts.
#[derive(Debug)]
pub(crate) struct Routes(pub(crate) Vec<Arc<Route>>);

impl Routes {
    /// The route of a method and path, protected or not.
    pub(crate) fn find(&self, method: &Method, path: &NormalPath<'_>) -> Option<&Arc<Route>> {
        self.0.iter().find(|route| route.matches(method, path))
    }

    /// The route of an incoming request. Keeps track of routes that never match.
    pub(crate) fn find_and_note(
        &self,
        method: &Method,
        path: &NormalPath<'_>,
    ) -> Option<&Arc<Route>> {
        let found = self.find(method, path);
        match found {
            Some(route) if matches!(route.matcher, Matcher::Pattern(_)) => {
                // Written once only: the cache line is shared by all threads.
                if !route.is_used.load(Ordering::Relaxed) {
                    route.is_used.store(true, Ordering::Relaxed);
                }
            }
            _ => self.0.iter().for_each(|route| route.note_miss(method, path)),
        }
        found
    }

    /// The route for requests that no other matches.
    pub(crate) fn default_route(&self) -> Option<&Arc<Route>> {
        self.0.last()
    }
}

/// Whether requests with this method never touch the store, key or no key.
pub(crate) fn is_never_protected(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::CONNECT].contains(method)
}

/// The methods and paths that a route matches.
///
/// Methods are separated by commas; `*` means POST and PATCH. In the path, `*` and `{name}` match
/// one segment, and a `*` at the end matches everything below. Paths are normalised before they
/// are compared: `/payments/`, `//payments` and `/x/%2e%2e/payments` are `/payments`.
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
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// If it is not `METHODS /path`, or names a method that cannot be protected.
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

    /// Whether it matches a method and a path in any spelling.
    #[must_use]
    pub fn matches(&self, method: &Method, path: &str) -> bool {
        NormalPath::of(path).is_some_and(|path| self.matches_normal(method, path.as_str()))
    }

    fn matches_normal(&self, method: &Method, path: &str) -> bool {
        self.methods.contains(method) && self.fits_normal(path)
    }

    fn fits_normal(&self, path: &str) -> bool {
        fits(&self.segments, segments(path), |text, part| decoded(part) == *text)
    }

    /// The place of the first of some patterns that matches a method and a path in any spelling;
    /// without a method, of the first whose path fits, whatever its methods are.
    ///
    /// ```
    /// use http::Method;
    /// use justonce_http::Pattern;
    ///
    /// let patterns = [Pattern::parse("POST /orders")?, Pattern::parse("PUT /shops/*")?];
    /// assert_eq!(Pattern::first(&patterns, Some(&Method::GET), "/shops/7"), None);
    /// assert_eq!(Pattern::first(&patterns, None, "//shops/7"), Some(1));
    /// # Ok::<(), justonce_http::PatternError>(())
    /// ```
    #[must_use]
    pub fn first<'p>(
        patterns: impl IntoIterator<Item = &'p Self>,
        method: Option<&Method>,
        path: &str,
    ) -> Option<usize> {
        // Once for all of them: a path may be long.
        let path = NormalPath::of(path)?;
        patterns.into_iter().position(|pattern| match method {
            Some(method) => pattern.matches_normal(method, path.as_str()),
            None => pattern.fits_normal(path.as_str()),
        })
    }

    /// Whether a path that does not match is similar: with more segments in front, without some of
    /// the first, or in another case. That happens if the router is nested below a path.
    fn is_near(&self, path: &str) -> bool {
        let alike = |text: &str, part: &str| decoded(part).eq_ignore_ascii_case(text);
        let parts = || segments(path);
        let (own, count) = (self.segments.len(), parts().count());
        let below = (0..count).any(|front| fits(&self.segments, parts().skip(front), alike));
        let inside = (1..own).any(|front| {
            let rest = self.segments.get(front..).unwrap_or_default();
            has_name(rest) && fits(rest, parts(), alike)
        });
        has_name(&self.segments) && (below || inside)
    }

    /// The methods that it matches.
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

/// Whether a name is among segments: without one they are similar to everything.
fn has_name(segments: &[Segment]) -> bool {
    segments.iter().any(|segment| matches!(segment, Segment::Exactly(_)))
}

fn decoded(part: &str) -> Cow<'_, str> {
    if part.contains('%') { percent_decode_str(part).decode_utf8_lossy() } else { part.into() }
}

fn method(name: &str) -> Result<Method, PatternError> {
    match name {
        "POST" => Ok(Method::POST),
        "PATCH" => Ok(Method::PATCH),
        "PUT" => Ok(Method::PUT),
        "DELETE" => Ok(Method::DELETE),
        other => Err(PatternError::Method(other.into())),
    }
}

/// Why a pattern was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternError {
    /// It is not a list of methods and a path.
    Shape,
    /// This method cannot be protected.
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
