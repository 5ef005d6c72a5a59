//! Callers that cannot be told apart, or that are told apart too often.

use http::HeaderName;

use super::identity::{is_by_address, is_by_claim, is_by_token};
use super::settings::{JwksSource, JwtSettings, RouteSettings, ScopePart, Settings};
use super::words::header;

/// Words in the names of headers that hold credentials.
const CREDENTIALS: [&str; 6] = ["auth", "key", "token", "secret", "signature", "assertion"];

/// What concerns the gateway as a whole.
pub(super) fn gateway(settings: &Settings) -> Vec<String> {
    let keyed = || settings.all_routes().filter(|route| route.key.is_some());
    let mut texts = Vec::new();
    let by_claim = keyed().any(is_by_claim);
    for issuer in &settings.jwt {
        texts.extend(of_issuer(issuer));
        if !by_claim {
            let name = &issuer.name;
            texts.push(format!("`jwt.{name}`: no `scope` has a `jwt:…`, so no token is verified"));
        }
    }
    let is_used = |part: &ScopePart| matches!(part, ScopePart::Caller | ScopePart::Certificate);
    let asks = settings.tls.as_ref().is_some_and(|tls| tls.clients.is_some());
    if asks && !keyed().any(|route| route.scope.iter().any(is_used)) {
        texts.push(
            "`tls.client_ca`: no `scope` has `certificate` or `caller`, so certificates tell no \
             callers apart"
                .into(),
        );
    }
    texts
}

fn of_issuer(issuer: &JwtSettings) -> Vec<String> {
    let name = &issuer.name;
    let mut texts = Vec::new();
    if issuer.audience.is_empty() {
        texts.push(format!(
            "`jwt.{name}.audience` is \"*\": a token that was made for another service counts here"
        ));
    }
    if let JwksSource::Url(url) = &issuer.jwks
        && url.starts_with("http:")
    {
        texts.push(format!(
            "`jwt.{name}.jwks` is fetched in cleartext: whoever can listen on that port of this \
             machine can make tokens"
        ));
    }
    texts
}

/// What concerns one route.
pub(super) fn of_route(route: &RouteSettings, settings: &Settings) -> Vec<String> {
    if route.key.is_none() {
        return Vec::new();
    }
    let found = [
        by_address(route, settings),
        by_chosen_header(route),
        token_twice(route),
        by_certificate(route, settings),
    ];
    found.into_iter().flatten().collect()
}

/// Callers that cannot be told apart by their addresses.
fn by_address(route: &RouteSettings, settings: &Settings) -> Option<String> {
    if !is_by_address(route) {
        return None;
    }
    if settings.listen.ip().is_none() && !settings.proxies.unix {
        return Some(
            "`scope` with `address` on a Unix socket: nobody who connects there has one, so the \
             callers cannot be told apart by it; if it is a proxy that connects, set `proxies.unix`"
                .into(),
        );
    }
    if settings.proxies.trusted.is_empty() && !settings.proxies.unix {
        return Some(
            "`scope` with `address`, and no proxy is trusted: behind a proxy all callers have its \
             address; name it in `proxies.trusted`"
                .into(),
        );
    }
    let is_other = |part: &ScopePart| !matches!(part, ScopePart::Address | ScopePart::Tenant(_));
    (!route.scope.iter().any(is_other)).then(|| {
        "`scope` by `address` alone: callers behind one address, as in an office, get each other's \
         responses, and a retry from another address executes again"
            .into()
    })
}

/// Callers that are told apart only by what they say themselves.
fn by_chosen_header(route: &RouteSettings) -> Option<String> {
    let is_credential =
        |name: &HeaderName| CREDENTIALS.iter().any(|word| name.as_str().contains(word));
    let chosen = |part: &ScopePart| match part {
        ScopePart::Principal(name) if !is_credential(name) => Some(name.clone()),
        ScopePart::Tenant(name) => Some(name.clone()),
        _ => None,
    };
    let name = route.scope.first().and_then(chosen)?;
    let all = route.scope.iter().all(|part| chosen(part).is_some());
    all.then(|| {
        let name = header(&name);
        format!(
            "`scope` by {name} alone: a client that can choose it gets the responses of others; \
             let a proxy set it, or add `caller` or `jwt:sub`"
        )
    })
}

/// A token that is a part of the scope beside its claim.
fn token_twice(route: &RouteSettings) -> Option<String> {
    (is_by_claim(route) && is_by_token(route)).then(|| {
        "`scope` with `jwt:…` and `Authorization` too: all parts count, so a refreshed token is a \
         new caller after all; leave the other part out"
            .into()
    })
}

/// Certificates behind proxies.
fn by_certificate(route: &RouteSettings, settings: &Settings) -> Option<String> {
    let by_certificate = route.scope.contains(&ScopePart::Certificate);
    let is_proxied = !settings.proxies.trusted.is_empty() && !settings.proxies.proxy_protocol;
    (by_certificate && is_proxied).then(|| {
        "`scope` by `certificate`, and `proxies.trusted`: requests that a proxy reports have no \
         certificate of their client, and get 409 unless their cookies are the same"
            .into()
    })
}
