//! Which rule a request falls under.

use std::sync::Arc;

use http::{HeaderMap, Method, Version};
use justonce_core::ScopeError;

use crate::meters::Meters;
use crate::pattern::Pattern;
use crate::rule::{KeyPresence, Rule};
use crate::same::{Caller, Scopes};

/// The name of the route for requests that no other is for.
pub(crate) const DEFAULT_NAME: &str = "default";

/// A rule and the requests it is for.
#[derive(Debug)]
pub(crate) struct Route {
    /// Its name: in scopes, metrics and logs.
    pub(crate) name: Box<str>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) rule: Rule,
    pub(crate) lifetime: http::HeaderValue,
    pub(crate) meters: Meters,
    scopes: Scopes,
}

impl Route {
    pub(crate) fn new(name: &str, pattern: Option<Pattern>, rule: Rule) -> Arc<Self> {
        let lifetime = http::HeaderValue::from(rule.policy.retention().as_secs());
        let (meters, scopes) = (Meters::of(name), Scopes::default());
        Arc::new(Self { name: name.into(), pattern, rule, lifetime, meters, scopes })
    }

    /// Whose a request is.
    pub(crate) fn caller(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Caller, ScopeError> {
        self.scopes.of(&self.rule, &self.name, method, headers)
    }

    fn matches(&self, method: &Method, path: &str) -> bool {
        match &self.pattern {
            Some(pattern) => pattern.matches(method, path),
            None => *method == Method::POST || *method == Method::PATCH,
        }
    }
}

/// The route that a request fell under, as an extension of the request: for services that do
/// different things for different routes.
#[derive(Clone, Debug)]
pub struct MatchedRoute(pub(crate) Arc<Route>);

impl MatchedRoute {
    /// The route's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

/// All routes: the first that matches counts, and at the end one for POST and PATCH.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) list: Vec<Arc<Route>>,
}

impl Routes {
    /// The route of a request, if it is to be protected.
    pub(crate) fn of(&self, method: &Method, path: &str) -> Option<&Arc<Route>> {
        self.list
            .iter()
            .find(|route| route.matches(method, path))
            .filter(|route| route.rule.key_presence != KeyPresence::Off)
    }
}

/// Whether a request never touches the store, key or no key.
pub(crate) fn never_protected(method: &Method, headers: &HeaderMap, version: Version) -> bool {
    let is_safe = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::CONNECT]
        .contains(method);
    is_safe || (version <= Version::HTTP_11 && wants_upgrade(headers))
}

/// Whether a request wants to leave HTTP. Some clients offer to go on with HTTP/2 (`h2c`) in their
/// first request, whatever it asks; servers ignore that, and the request is executed as it is.
fn wants_upgrade(headers: &HeaderMap) -> bool {
    let mut protocols = headers.get_all(http::header::UPGRADE).into_iter();
    protocols.any(|line| !line.as_bytes().trim_ascii().eq_ignore_ascii_case(b"h2c"))
        && headers.get_all(http::header::CONNECTION).into_iter().any(|line| {
            let mut words = line.as_bytes().split(|byte| *byte == b',');
            words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
        })
}
