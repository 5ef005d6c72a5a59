//! Routes whose requests go elsewhere after a reload.

use crate::config::{RouteSettings, Settings};

/// The protected routes whose upstream has none of the addresses that it had before. Operations of
/// theirs that are unknown are asked about there from now on, and stored requests are sent there.
pub(crate) fn moved_routes<'s>(before: &Settings, after: &'s Settings) -> Vec<&'s str> {
    let moved = all(after).filter(|route| {
        let same = |other: &&RouteSettings| other.name == route.name && other.key.is_some();
        route.key.is_some()
            && all(before).find(same).is_some_and(|earlier| {
                let (old, new) = (urls(before, earlier), urls(after, route));
                !new.iter().any(|url| old.contains(url))
            })
    });
    moved.map(|route| route.name.as_str()).collect()
}

fn all(settings: &Settings) -> impl Iterator<Item = &RouteSettings> {
    settings.routes.iter().chain([&settings.default_route])
}

/// The addresses of a route's upstream.
fn urls<'s>(settings: &'s Settings, route: &RouteSettings) -> &'s [String] {
    let upstream = settings.upstreams.iter().find(|upstream| upstream.name == route.upstream);
    upstream.map(|upstream| upstream.urls.as_slice()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn settings(text: &str) -> Settings {
        config::parse(text, "a.toml").unwrap()
    }

    const BEFORE: &str = "
        upstream = ['http://a:1', 'http://b:1']
        [upstreams.pay]
        urls = 'http://c:1'
        [[route]]
        match = 'POST /pay'
        name = 'pay'
        upstream = 'pay'
        [[route]]
        match = 'POST /files'
        name = 'files'
        upstream = 'pay'
        key = 'off'
    ";

    #[test]
    fn only_another_upstream_of_a_protected_route_counts() {
        let before = settings(BEFORE);
        let moved = |text: &str| {
            let after = settings(text);
            moved_routes(&before, &after).join(" ")
        };
        assert_eq!(moved(BEFORE), "");
        assert_eq!(moved(&BEFORE.replace("c:1", "d:1")), "pay");
        // One address more, or less, is the same service.
        assert_eq!(moved(&BEFORE.replace("'http://c:1'", "['http://c:1', 'http://d:1']")), "");
        assert_eq!(moved(&BEFORE.replace("['http://a:1', 'http://b:1']", "'http://b:1'")), "");
        // Another name for the same addresses changes nothing; another upstream does.
        assert_eq!(
            moved(&BEFORE.replace("pay]", "p]").replace("upstream = 'pay'", "upstream = 'p'")),
            ""
        );
        assert_eq!(moved(&BEFORE.replace("upstream = 'pay'", "upstream = 'default'")), "pay");
        assert_eq!(
            moved(&BEFORE.replace("['http://a:1', 'http://b:1']", "'http://e:1'")),
            "default"
        );
        // A route with another name has no operations yet.
        let other = BEFORE.replace("name = 'pay'", "name = 'new'").replace("c:1", "d:1");
        assert_eq!(moved(&other), "");
    }
}
