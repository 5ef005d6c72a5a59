//! Which rule a request falls under.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, Method};
use justonce_core::ScopeError;

use crate::caller::{Caller, Scopes};
use crate::meters::Meters;
use crate::path::NormalPath;
use crate::pattern::Pattern;
use crate::rule::{KeyPresence, Rule};

/// The name of the route for requests that no other is for.
pub(crate) const DEFAULT_NAME: &str = "default";

/// A rule and the requests it is for.
#[derive(Debug)]
pub(crate) struct Route {
    /// Its name: in scopes, metrics and logs.
    pub(crate) name: Box<str>,
    reach: Reach,
    pub(crate) rule: Rule,
    pub(crate) lifetime: http::HeaderValue,
    pub(crate) meters: Meters,
    scopes: Scopes,
    /// Whether a request has matched.
    is_used: AtomicBool,
    /// Whether it was said that none has, and some look as if they should.
    is_told: AtomicBool,
}

/// Which requests a route is for, of those that can be protected.
#[derive(Debug)]
pub(crate) enum Reach {
    /// Those of a pattern.
    Pattern(Pattern),
    /// POST and PATCH.
    Rest,
    /// All.
    Every,
}

impl Route {
    pub(crate) fn new(name: &str, reach: Reach, rule: Rule) -> Arc<Self> {
        let lifetime = http::HeaderValue::from(rule.policy.retention().as_secs());
        let (meters, scopes) = (Meters::of(name), Scopes::default());
        let (is_used, is_told) = (AtomicBool::new(false), AtomicBool::new(false));
        let name = name.into();
        Arc::new(Self { name, reach, rule, lifetime, meters, scopes, is_used, is_told })
    }

    /// Whose a request is.
    pub(crate) fn caller(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Caller, ScopeError> {
        self.scopes.of(&self.rule, &self.name, method, headers)
    }

    /// Whether requests of this route are looked at.
    pub(crate) fn is_protected(&self) -> bool {
        self.rule.key_presence != KeyPresence::Off
    }

    fn matches(&self, method: &Method, path: &NormalPath<'_>) -> bool {
        match &self.reach {
            Reach::Pattern(pattern) => {
                pattern.methods().contains(method) && pattern.matches_normal(path.as_str())
            }
            Reach::Rest => *method == Method::POST || *method == Method::PATCH,
            Reach::Every => true,
        }
    }

    /// Notes that a request matched.
    fn note_use(&self) {
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// Notes a request that this route was not taken for, if it looks as if it were meant for it
    /// and no other ever was.
    fn note_miss(&self, method: &Method, path: &NormalPath<'_>) {
        let Reach::Pattern(pattern) = &self.reach else { return };
        if self.is_used.load(Ordering::Relaxed)
            || !pattern.methods().contains(method)
            || !pattern.is_near(path.as_str())
        {
            return;
        }
        self.meters.near_misses.increment(1);
        if !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "justonce::route",
                route = &*self.name, %pattern, path = path.as_str(),
                "no request has matched this route, and one that looks like it fell under another \
                 rule: is the router nested below a path?"
            );
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

/// All routes: the first that matches counts, and at the end one for the rest.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) list: Vec<Arc<Route>>,
}

impl Routes {
    /// The route of a request, protected or not.
    pub(crate) fn of(&self, method: &Method, path: &NormalPath<'_>) -> Option<&Arc<Route>> {
        self.list.iter().find(|route| route.matches(method, path))
    }

    /// The same, for a request that came: routes that are never used are noticed.
    pub(crate) fn taken(&self, method: &Method, path: &NormalPath<'_>) -> Option<&Arc<Route>> {
        let found = self.of(method, path);
        match found {
            Some(route) if matches!(route.reach, Reach::Pattern(_)) => route.note_use(),
            _ => self.list.iter().for_each(|route| route.note_miss(method, path)),
        }
        found
    }

    /// The rule for requests that no route is for.
    pub(crate) fn rest(&self) -> Option<&Rule> {
        self.list.last().map(|route| &route.rule)
    }
}

/// Whether a request never touches the store, key or no key.
pub(crate) fn never_protected(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::CONNECT].contains(method)
}
