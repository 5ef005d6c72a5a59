//! An upstream in plain words, for `justonce check`.

use super::settings::{
    Balance, HealthSettings, Protocol, RouteSettings, Settings, UpstreamHost, UpstreamSettings,
    UpstreamTls,
};
use super::words::{duration, list};

/// The name of the upstream of routes that name none.
const DEFAULT: &str = "default";

/// Where the gateway forwards to, in its first sentence.
pub(super) fn forwards_to(settings: &Settings) -> String {
    match settings.upstreams.iter().find(|upstream| upstream.name == DEFAULT) {
        Some(upstream) => list(&upstream.urls),
        None => "the upstreams below".to_owned(),
    }
}

/// What is said about an upstream: its headline, and what holds for it. Nothing about the default
/// one, if its addresses are all there is to say.
pub(super) fn said(
    upstream: &UpstreamSettings,
    settings: &Settings,
) -> Option<(String, Vec<String>)> {
    let UpstreamSettings { name, urls, balance, protocol, host, tls, health } = upstream;
    // What holds anyway is not told of the default one.
    let is_told = |is_plain: bool| name != DEFAULT || !is_plain;
    let has_tls = urls.iter().any(|url| url.starts_with("https:"));
    let mut said = Vec::new();
    if urls.len() > 1 && is_told(*balance == Balance::LeastLoaded) {
        said.push(format!("Choice: {}", balance_words(*balance)));
    }
    if *protocol == Protocol::Http2 {
        said.push("Protocol: HTTP/2; no other protocol can be switched to.".to_owned());
    }
    if is_told(*host == UpstreamHost::Client) {
        said.push(format!("Host: {}", host_words(host)));
    }
    if has_tls && is_told(*tls == UpstreamTls::default()) {
        said.push(format!("TLS: {}", tls_words(tls, settings)));
    }
    if is_told(health.is_none()) {
        said.push(format!("Health: {}", health_words(health.as_ref())));
    }
    let head = format!("Upstream {name}: {}", list(urls));
    (!said.is_empty()).then_some((head, said))
}

/// Where the requests of a route go, if it names an upstream.
pub(super) fn of_route(route: &RouteSettings) -> Option<String> {
    if route.upstream == DEFAULT {
        return None;
    }
    let also = match route.pattern {
        None => "and so does every other request that no route is for.",
        Some(_) => {
            "and so do GET, HEAD and other requests to its paths that are not protected, unless \
             another route above has the same path."
        }
    };
    Some(format!("Upstream: requests go to `{}`, {also}", route.upstream))
}

fn balance_words(balance: Balance) -> &'static str {
    match balance {
        Balance::LeastLoaded => "the address with the fewest requests under way gets the next.",
        Balance::RoundRobin => "one address after the other.",
    }
}

fn host_words(host: &UpstreamHost) -> String {
    match host {
        UpstreamHost::Client => "it receives the client's.".to_owned(),
        UpstreamHost::Upstream => {
            "it receives its own, and the client's as `X-Forwarded-Host`.".to_owned()
        }
        UpstreamHost::Name(name) => {
            let name = name.to_str().unwrap_or_default();
            format!("it receives `{name}`, and the client's as `X-Forwarded-Host`.")
        }
    }
}

fn tls_words(tls: &UpstreamTls, settings: &Settings) -> String {
    let trusted = match (&tls.ca, &settings.upstream_ca) {
        (Some(ca), _) => format!("only certificates of {} are trusted", ca.display()),
        (None, Some(ca)) => {
            format!("the system's authorities and those of {} are trusted", ca.display())
        }
        (None, None) => "the system's authorities are trusted".to_owned(),
    };
    let name = match &tls.name {
        Some(name) => format!("for the name `{name}`"),
        None => "for the host of the address".to_owned(),
    };
    let shown = match &tls.identity {
        Some((cert, _)) => format!("The gateway shows the certificate in {}.", cert.display()),
        None => "The gateway shows no certificate.".to_owned(),
    };
    format!("{trusted}, {name}. {shown}")
}

fn health_words(health: Option<&HealthSettings>) -> String {
    let Some(health) = health else { return "not checked.".to_owned() };
    let statuses: Vec<String> = health.status.iter().map(ToString::to_string).collect();
    format!(
        "each address is asked `GET {}` about every {}. Success is {} within {}. After {} in a row \
         an address gets no new requests, and after {} in a row it does again; while no address is \
         healthy, all get them.",
        health.path,
        duration(health.interval),
        statuses.join(" or "),
        duration(health.timeout),
        counted(health.unhealthy_after, "failure"),
        counted(health.healthy_after, "success"),
    )
}

fn counted(count: u32, what: &str) -> String {
    match (count, what) {
        (1, what) => format!("1 {what}"),
        (count, "success") => format!("{count} successes"),
        (count, what) => format!("{count} {what}s"),
    }
}
