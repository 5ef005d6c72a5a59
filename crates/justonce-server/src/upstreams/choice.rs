//! Which upstream each request goes to.

use std::collections::HashMap;

use http::Method;
use justonce::http::Pattern;
use justonce_proxy::Proxy;

use super::named::UpstreamSet;
use crate::config::Settings;

/// The upstream of each route, and of requests that fall under none.
#[derive(Debug)]
pub(crate) struct RouteProxies {
    /// For all that nothing else is for.
    rest: Proxy,
    /// Nothing if everything goes to one upstream, as mostly: then no request looks for its own.
    routes: Option<Chosen>,
}

#[derive(Debug)]
struct Chosen {
    by_name: HashMap<String, Proxy>,
    /// In the order of the configuration.
    by_path: Vec<(Pattern, Proxy)>,
}

impl RouteProxies {
    /// # Errors
    ///
    /// If an upstream is not there; the configuration was checked, so this is a surprise.
    pub(crate) fn new(upstreams: &UpstreamSet, settings: &Settings) -> anyhow::Result<Self> {
        let rest = upstreams.proxy(&settings.default_route.upstream)?.clone();
        let same = |name: &String| *name == settings.default_route.upstream;
        if settings.routes.iter().all(|route| same(&route.upstream)) {
            return Ok(Self { rest, routes: None });
        }
        let (mut by_name, mut by_path) = (HashMap::new(), Vec::new());
        for route in &settings.routes {
            let proxy = upstreams.proxy(&route.upstream)?;
            by_name.insert(route.name.clone(), proxy.clone());
            by_path.extend(route.pattern.clone().map(|pattern| (pattern, proxy.clone())));
        }
        Ok(Self { rest, routes: Some(Chosen { by_name, by_path }) })
    }

    /// The upstream of a route.
    pub(crate) fn of_route(&self, name: &str) -> &Proxy {
        let routes = self.routes.as_ref();
        routes.and_then(|routes| routes.by_name.get(name)).unwrap_or(&self.rest)
    }

    /// The upstream of a request that no rule is applied to: that of the first route that matches
    /// it. POST and PATCH that no route is for belong to the default route. All other methods go
    /// where the rest of their path goes, although no route names them.
    pub(crate) fn of_request(&self, method: &Method, path: &str) -> &Proxy {
        let Some(Chosen { by_path, .. }) = &self.routes else { return &self.rest };
        let patterns = || by_path.iter().map(|(pattern, _)| pattern);
        let found = match *method {
            Method::POST | Method::PATCH => Pattern::first(patterns(), Some(method), path),
            Method::PUT | Method::DELETE => Pattern::first(patterns(), Some(method), path)
                .or_else(|| Pattern::first(patterns(), None, path)),
            _ => Pattern::first(patterns(), None, path),
        };
        found.and_then(|at| by_path.get(at)).map_or(&self.rest, |(_, proxy)| proxy)
    }
}

#[cfg(test)]
mod tests {
    use justonce::memory::MemoryStore;
    use justonce::{Engine, ManualClock};

    use super::super::Upstreams;
    use super::*;
    use crate::config;

    const TEXT: &str = "
        upstream = 'http://127.0.0.1:1'
        [upstreams.pay]
        urls = 'http://127.0.0.1:2'
        [upstreams.files]
        urls = 'http://127.0.0.1:3'
        [[route]]
        match = 'POST /pay/special'
        name = 'special'
        [[route]]
        match = 'POST /pay/*'
        name = 'pay'
        upstream = 'pay'
        [[route]]
        match = 'PUT,DELETE /files/{id}'
        name = 'files'
        upstream = 'files'
        key = 'off'
    ";

    fn port(proxy: &Proxy) -> u16 {
        proxy.settings().upstreams[0].port()
    }

    #[tokio::test]
    async fn requests_go_where_their_path_goes() {
        let settings = config::parse(TEXT, "a.toml").unwrap();
        let engine = Engine::new(MemoryStore::new(ManualClock::default()));
        let upstreams = Upstreams::new(&engine, &settings).unwrap();
        let proxies = RouteProxies::new(&upstreams.now(), &settings).unwrap();
        for (route, expected) in [("special", 1), ("pay", 2), ("files", 3), ("default", 1)] {
            assert_eq!(port(proxies.of_route(route)), expected, "{route}");
        }
        for (method, path, expected) in [
            (Method::GET, "/pay/7", 2),
            (Method::GET, "//pay/./7", 2),
            (Method::GET, "/p%61y/7", 2),
            (Method::GET, "/pay/special", 1),
            (Method::GET, "/pay", 1),
            (Method::OPTIONS, "*", 1),
            (Method::DELETE, "/pay/7", 2),
            (Method::HEAD, "/files/7", 3),
            (Method::DELETE, "/files/7", 3),
            // It falls under the default rule, and is asked about there.
            (Method::POST, "/files/7", 1),
            (Method::PATCH, "/pay/7", 1),
        ] {
            assert_eq!(port(proxies.of_request(&method, path)), expected, "{method} {path}");
        }
    }

    #[tokio::test]
    async fn with_one_upstream_nothing_is_looked_for() {
        let one = TEXT.replace("upstream = 'pay'", "").replace("upstream = 'files'", "");
        let settings = config::parse(&one, "a.toml").unwrap();
        let engine = Engine::new(MemoryStore::new(ManualClock::default()));
        let upstreams = Upstreams::new(&engine, &settings).unwrap();
        let proxies = RouteProxies::new(&upstreams.now(), &settings).unwrap();
        assert!(proxies.routes.is_none());
        assert_eq!(port(proxies.of_request(&Method::GET, "/pay/7")), 1);
    }
}
