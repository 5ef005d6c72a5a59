//! Settings that are allowed and risky.

use std::fmt;
use std::time::Duration;

use http::Method;
use http::header::{AUTHORIZATION, COOKIE, SET_COOKIE};
use justonce_core::OnLapsed;
use justonce_http::{GrpcStatus, StatusRules};
use justonce_net::AddressRange;

use super::covers::Reach;
use super::identity::{REFRESHED, is_by_token};
use super::settings::{
    AdminToken, BodyMode, KeySource, ResponseEffect, ResponseSet, RouteSettings, Settings,
    StatusSet, StoreUrl, WhenStoreDown,
};
use super::warnings_identity;
use super::words::{duration, header};

/// Clients that retry for longer than this are common.
const SHORT_RETENTION: Duration = Duration::from_secs(3600);
/// A process can pause this long without being dead.
const SHORT_LEASE: Duration = Duration::from_secs(5);
/// A token with fewer characters can be tried out.
const SHORT_TOKEN_CHARS: usize = 16;
/// Words in paths where twice is once too often.
const MONEY: [&str; 9] =
    ["pay", "charge", "transfer", "refund", "payout", "withdraw", "order", "invoice", "checkout"];

/// A setting that is allowed and risky.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The name of the route, if it is about one.
    pub route: Option<String>,
    /// What may happen.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.route {
            Some(route) => write!(f, "route {route}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// What an operator should think about twice.
#[must_use]
pub fn warnings(settings: &Settings) -> Vec<Warning> {
    let mut found: Vec<Warning> = gateway(settings)
        .into_iter()
        .map(str::to_owned)
        .chain(warnings_identity::gateway(settings))
        .map(|text| Warning { route: None, text })
        .collect();
    found.extend(unused(settings));
    for route in settings.all_routes() {
        found.extend(takes_all_places(settings, route));
        let texts = of_route(route).into_iter().chain(warnings_identity::of_route(route, settings));
        found.extend(texts.map(|text| Warning { route: Some(route.name.clone()), text }));
    }
    found
}

/// Routes that no request can fall under: what they say is not in force, which is surely not meant.
#[must_use]
pub fn never_reached(settings: &Settings) -> Vec<Warning> {
    let mut earlier = Vec::new();
    let routes = settings.routes.iter();
    let found = routes.filter_map(|route| Some((route, taken_by_earlier(route, &mut earlier)?)));
    found.map(|(route, text)| Warning { route: Some(route.name.clone()), text }).collect()
}

/// What is right and should be known: said at the start.
#[must_use]
pub fn notes(settings: &Settings) -> Vec<String> {
    let routes = settings.all_routes();
    let by_token: Vec<&str> = routes
        .filter(|route| route.key.is_some() && is_by_token(route))
        .map(|route| route.name.as_str())
        .collect();
    if by_token.is_empty() {
        return Vec::new();
    }
    let shown = by_token.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = match by_token.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    vec![format!("{REFRESHED} This concerns the routes: {shown}{more}")]
}

/// More routes than this are counted, not named.
const MAX_NAMED: usize = 20;

fn gateway(settings: &Settings) -> Vec<&'static str> {
    let mut texts = Vec::new();
    if settings.store == StoreUrl::Memory {
        texts.push("`store = \"memory:\"`: a restart forgets all keys; retries execute again");
    }
    if let Some(AdminToken::Text(token)) = &settings.admin_token
        && token.reveal().chars().count() < SHORT_TOKEN_CHARS
    {
        texts.push("`admin_token` has fewer than 16 characters and can be tried out");
    }
    if let Some(AdminToken::Text(token)) = &settings.callback_token
        && token.reveal().chars().count() < SHORT_TOKEN_CHARS
    {
        texts.push("`callback_token` has fewer than 16 characters and can be tried out");
    }
    let exposed = settings.admin.is_some_and(|admin| !admin.ip().is_loopback());
    if exposed {
        texts.push("`admin` can be reached from other machines, and its token goes in cleartext");
    }
    if settings.proxies.trusted.iter().any(AddressRange::is_everything) {
        texts.push("`proxies.trusted` has every address: any client can claim to be another one");
    }
    texts
}

/// Upstreams that no route names.
fn unused(settings: &Settings) -> impl Iterator<Item = Warning> {
    let used = |name: &str| settings.all_routes().any(|route| route.upstream == name);
    let unused = settings.upstreams.iter().filter(move |upstream| !used(&upstream.name));
    unused.map(|upstream| Warning {
        route: None,
        text: format!("`upstreams.{}`: no route names it, so it gets no requests", upstream.name),
    })
}

/// A limit that leaves one caller all that there is.
fn takes_all_places(settings: &Settings, route: &RouteSettings) -> Option<Warning> {
    let (own, all) = (route.per_caller?.max_concurrent()?, settings.limits.concurrent);
    let text = format!(
        "`per_caller.concurrent` of {own}: `limits.concurrent` is {all}, so one caller can still \
         stop all others"
    );
    (own >= all).then(|| Warning { route: Some(route.name.clone()), text })
}

/// The first route that matches counts.
fn taken_by_earlier<'r>(
    route: &'r RouteSettings,
    earlier: &mut Vec<(Reach<'r>, &'r str)>,
) -> Option<String> {
    let reach = Reach::of(route.pattern.as_ref()?);
    let taker = earlier.iter().find(|(other, _)| other.covers(&reach)).map(|(_, name)| *name);
    earlier.push((reach, &route.name));
    taker.map(|name| format!("never reached: `{name}` above takes all its requests"))
}

fn of_route(route: &RouteSettings) -> Vec<String> {
    let Some(key) = &route.key else { return Vec::new() };
    let mut texts = Vec::new();
    texts.extend(rerun(route));
    if route.probe.is_some() && route.policy.on_lapsed() != OnLapsed::Hold {
        texts.push(
            "`probe` without `on_lapsed = \"hold\"`: what is run again is not asked about".into(),
        );
    }
    if route.on_store_down == WhenStoreDown::Pass {
        texts.push(
            "`on_store_down = \"pass\"`: while the store is down, duplicates are executed".into(),
        );
    }
    if route.scope.is_empty() {
        texts.push(
            match key.source {
                KeySource::Content => {
                    "content keys without `scope`: equal requests of different callers are one \
                 operation, and one gets the other's response"
                }
                _ => {
                    "no `scope`: a caller who uses or guesses another's key gets the other's \
                     response"
                }
            }
            .into(),
        );
    }
    if route.policy.retention() < SHORT_RETENTION {
        let time = duration(route.policy.retention());
        texts.push(format!("`retention` of {time}: a retry that comes later executes again"));
    }
    if route.policy.lease() < SHORT_LEASE {
        let time = duration(route.policy.lease());
        texts.push(format!("`lease` of {time}: a pause of the gateway looks like a crash"));
    }
    if route.fingerprint.body == BodyMode::Ignored && key.source != KeySource::Content {
        texts.push(
            "`fingerprint.body = \"none\"`: one key with two different bodies is not noticed"
                .into(),
        );
    }
    texts.extend(statuses(route));
    if let Some(without) = &route.complete
        && let Some(name) = [AUTHORIZATION, COOKIE].iter().find(|name| !without.contains(name))
    {
        let name = header(name);
        texts.push(format!("`complete`: the store keeps requests, with {name} if they have it"));
    }
    let personal =
        route.keep_headers.iter().find(|name| [SET_COOKIE, AUTHORIZATION].contains(name));
    if let Some(name) = personal {
        let name = header(name);
        texts.push(format!("`keep_headers`: replays hand out the first response's {name}"));
    }
    texts
}

fn rerun(route: &RouteSettings) -> Option<String> {
    if route.policy.on_lapsed() == OnLapsed::Hold {
        return None;
    }
    let pattern = route.pattern.as_ref();
    let posts = pattern.is_none_or(|pattern| pattern.methods().contains(&Method::POST));
    if !posts {
        return None;
    }
    let name = format!("{} {}", pattern.map(ToString::to_string).unwrap_or_default(), route.name)
        .to_lowercase();
    let what = if MONEY.iter().any(|word| name.contains(word)) {
        "and this looks like money"
    } else {
        "unless the upstream honours the key itself"
    };
    Some(format!(
        "`on_lapsed = \"rerun\"` with POST: after a crash it may take effect twice, {what}"
    ))
}

/// Whether services also give this status after they have done something.
fn may_have_taken_effect(status: GrpcStatus) -> bool {
    StatusRules::default().of_grpc(status) == ResponseEffect::Unknown
}

fn statuses(route: &RouteSettings) -> Vec<String> {
    let rules = route.store_status.iter().filter_map(|rule| {
        let class = match rule.of {
            ResponseSet::Http(StatusSet::Class(class)) => class,
            ResponseSet::Http(StatusSet::Code(code)) => code / 100,
            ResponseSet::Grpc(GrpcStatus::Ok) => 2,
            ResponseSet::Grpc(status) if may_have_taken_effect(status) => 5,
            ResponseSet::Grpc(_) => 4,
        };
        let text = match (class, rule.then) {
            (2 | 3, ResponseEffect::NotExecuted) => {
                "a success is forgotten, its retry executes again"
            }
            (2 | 3, ResponseEffect::Unknown) => "a success is never replayed and must be resolved",
            (5, ResponseEffect::NotExecuted) => {
                "what failed after it took effect is executed again by a retry"
            }
            _ => return None,
        };
        let then = if rule.then == ResponseEffect::NotExecuted { "release" } else { "unknown" };
        Some(format!("`store_status`: \"{}\" = \"{then}\": {text}", rule.of))
    });
    rules.collect()
}
