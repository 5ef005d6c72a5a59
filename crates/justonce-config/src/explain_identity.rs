//! How callers are told apart, in plain words, for `justonce check`.

use super::explain_clients::address_words;
use super::identity::{REFRESHED, is_by_claim, is_by_token};
use super::settings::{JwksSource, JwtSettings, RouteSettings, ScopePart, Settings, Tls};
use super::words::{duration, header, headers, list};

/// What is spoken with clients, and what they show.
pub(super) fn tls_words(tls: Option<&Tls>) -> String {
    let Some(tls) = tls else { return "in cleartext".to_owned() };
    let Some(clients) = &tls.clients else { return "with TLS".to_owned() };
    let ca = clients.ca.display();
    if clients.is_required {
        format!("with TLS (clients must show a certificate that {ca} vouches for)")
    } else {
        format!("with TLS (clients may show a certificate that {ca} vouches for)")
    }
}

/// An issuer of tokens: its headline, and what holds for it.
pub(super) fn issuer(issuer: &JwtSettings) -> (String, Vec<String>) {
    let head = format!("Tokens {}: issued by {}", issuer.name, issuer.issuer);
    let audience = match issuer.audience.as_slice() {
        [] => "everybody: tokens for other services count too.".to_owned(),
        [one] => format!("{one}."),
        all => format!("{}; one of them is enough.", list(all)),
    };
    let place = match issuer.header.as_str() {
        "authorization" => "`Authorization`, behind `Bearer`".to_owned(),
        _ => header(&issuer.header),
    };
    let keys = match (&issuer.jwks, &issuer.ca) {
        (JwksSource::File(path), _) => format!("from the file {}", path.display()),
        (JwksSource::Url(url), None) => {
            format!("from {url}, fetched every {}", duration(issuer.refresh))
        }
        (JwksSource::Url(url), Some(ca)) => format!(
            "from {url}, whose server {} vouches for, fetched every {}",
            ca.display(),
            duration(issuer.refresh)
        ),
    };
    let said = vec![
        format!("For: {audience}"),
        format!("In: the header {place}; signed with {}.", either(&issuer.algorithms)),
        format!(
            "Keys: {keys}; an unknown one causes a fetch, at most every {}. Without newer ones \
             they count for {}, then tokens get 503.",
            duration(issuer.unknown_key_pause),
            duration(issuer.max_age)
        ),
    ];
    (head, said)
}

fn either(items: &[String]) -> String {
    match items.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => items.concat(),
    }
}

/// Whose namespace the keys of a route live in.
pub(super) fn scope_words(route: &RouteSettings, settings: &Settings) -> String {
    let (mut principals, mut tenants) = (Vec::new(), Vec::new());
    for part in &route.scope {
        match part {
            ScopePart::Caller => principals.push(caller_part(settings)),
            ScopePart::Principal(name) => principals.push(header(name)),
            ScopePart::Cookie(name) => principals.push(format!("the cookie `{name}`")),
            ScopePart::Address => principals.push("its address".to_owned()),
            ScopePart::Claim(claim) => {
                principals.push(format!("`{claim}` of its token (with the issuer)"));
            }
            ScopePart::Certificate => {
                principals.push("its certificate (subject and issuer)".to_owned());
            }
            ScopePart::Tenant(header) => tenants.push(header),
            _ => principals.push("another part of the request".to_owned()),
        }
    }
    let mut parts = Vec::new();
    if !principals.is_empty() {
        parts.push(format!("its caller, identified by {}", list(&principals)));
    }
    if !tenants.is_empty() {
        parts.push(format!("the tenant in {}", headers(tenants)));
    }
    if parts.is_empty() {
        return "all callers share one namespace; who knows a key gets its outcome.".to_owned();
    }
    let more = [
        nameless(route, principals.is_empty()),
        address_words(route, settings),
        certificate(route, settings),
        refreshed(route),
    ];
    let more: Vec<&str> = more.into_iter().filter(|words| !words.is_empty()).collect();
    format!("a key belongs to {}. {}", list(&parts), more.join(" "))
}

/// The parts of `caller`.
fn caller_part(settings: &Settings) -> String {
    let certificates = settings.tls.as_ref().is_some_and(|tls| tls.clients.is_some());
    let third = if certificates { ", or its certificate where there are neither" } else { "" };
    format!("`Authorization`, or `X-Api-Key` where there is none{third}")
}

/// What becomes of callers of whom nothing is known.
fn nameless(route: &RouteSettings, is_by_tenant: bool) -> &'static str {
    if is_by_claim(route) {
        "A request with a key and without a valid token gets 401; one without a key is not looked \
         at."
    } else if is_by_tenant {
        "Callers that send none of it share a namespace of their own."
    } else {
        "Callers of whom none of it is known share a namespace of their own, and get an outcome \
         only with the very same `Cookie`."
    }
}

fn refreshed(route: &RouteSettings) -> &'static str {
    match (is_by_token(route), is_by_claim(route)) {
        (true, _) => REFRESHED,
        (false, true) => "A refreshed token is the same caller.",
        (false, false) => "",
    }
}

fn certificate(route: &RouteSettings, settings: &Settings) -> &'static str {
    if !route.scope.contains(&ScopePart::Certificate) {
        return "";
    }
    if settings.proxies.trusted.is_empty() && !settings.proxies.unix {
        "A renewed certificate is the same caller."
    } else {
        "A renewed certificate is the same caller. Requests that trusted proxies report have none: \
         a proxy's certificate is not its clients'."
    }
}
