//! A configuration in plain words, for `justonce check`.

use std::time::Duration;

use justonce_core::{AfterRetention, OnLapsed};

use super::explain_clients::proxies_words;
use super::explain_identity::{issuer, scope_words, tls_words};
use super::explain_upstream::{forwards_to, of_route, said};
use super::settings::{
    AccessLog, AccessLogFormat, AccessLogTarget, BodyMode, Cors, Expected, JsonFields, KeyFormat,
    KeySettings, KeySource, KeySyntax, LoggedQuery, MadeTrace, PathEscapes, ProbeOutcome,
    ProbeRule, ResponseEffect, RouteSettings, Settings, StatusRule, StoreUrl, WhenBusy,
    WhenStoreDown,
};
use super::words::{duration, header, headers, list, size, wrap};

/// The widest line, in characters.
const WIDTH: usize = 90;
/// What the default route is for, if there are others.
const REST: &str = "Everything else: POST and PATCH that no route is for";

/// Tells what the gateway does with each route, in plain words.
#[must_use]
pub fn explain(settings: &Settings) -> String {
    let mut parts = vec![wrap(&gateway(settings), "", "", WIDTH)];
    let explain_route = |route: &RouteSettings, rest: &str| explain_route(route, rest, settings);
    let upstreams = settings.upstreams.iter().filter_map(|upstream| said(upstream, settings));
    let issuers = settings.jwt.iter().map(issuer);
    parts.extend(upstreams.chain(issuers).map(|(head, said)| {
        let lines: Vec<String> = said.iter().map(|text| bullet(text)).collect();
        format!("{}\n{}", wrap(&head, "", "  ", WIDTH), lines.join("\n"))
    }));
    parts.extend(settings.routes.iter().map(|route| explain_route(route, "")));
    let rest = if settings.routes.is_empty() { "Every POST and PATCH" } else { REST };
    parts.push(explain_route(&settings.default_route, rest));
    parts.join("\n\n")
}

fn gateway(settings: &Settings) -> String {
    let tls = tls_words(settings.tls.as_ref());
    let store = match &settings.store {
        StoreUrl::Memory => "in memory only".to_owned(),
        StoreUrl::File(path) => format!("in the directory {}", path.display()),
        StoreUrl::Redis(url) => format!("in Redis at {url}"),
        StoreUrl::Postgres(url) => format!("in PostgreSQL at {url}"),
        StoreUrl::Tiered { redis, postgres } => {
            format!("in PostgreSQL at {postgres}, with Redis at {redis} in front for duplicates")
        }
    };
    let admin = match (settings.admin, &settings.admin_token) {
        (None, _) => "There is no address for operators.".to_owned(),
        (Some(admin), None) => format!("Operators connect to {admin}."),
        (Some(admin), Some(_)) => format!("Operators connect to {admin} and show a token."),
    };
    let callbacks = match (settings.admin, &settings.callback_token) {
        (Some(_), Some(_)) => {
            " The service may report there, with a token of its own, what became of an operation."
        }
        _ => "",
    };
    let breaker = settings.breaker.map_or_else(String::new, |breaker| {
        format!(
            " An upstream that fails {} % of at least {} requests within {} gets no new \
             operations for {}.",
            (breaker.failure_ratio * 100.0).round(),
            breaker.min_requests,
            duration(breaker.window),
            duration(breaker.open_for)
        )
    });
    let drain = match settings.drain_delay {
        Duration::ZERO => String::new(),
        delay => format!(
            " Told to stop, it says that it is not ready, and goes on for {}.",
            duration(delay)
        ),
    };
    format!(
        "The gateway listens on {} {tls} and forwards to {}. {} Records are kept {store}. \
         {admin}{callbacks}{breaker}{drain}{}",
        settings.listen,
        forwards_to(settings),
        proxies_words(&settings.proxies),
        log_words(settings),
    )
}

/// What is logged of requests, and what traces they get.
fn log_words(settings: &Settings) -> String {
    let AccessLog { to, format, query, gets } = &settings.access_log;
    let mut words = String::new();
    if let Some(to) = to {
        let to = match to {
            AccessLogTarget::Stdout => "to standard output".to_owned(),
            AccessLogTarget::File(path) => format!("to {}", path.display()),
        };
        let format = match format {
            AccessLogFormat::Text => "as text",
            AccessLogFormat::Json => "as JSON",
            AccessLogFormat::Combined => "in the combined format",
        };
        let which = if *gets < 1.0 {
            format!("Every request, but only {} % of GET and HEAD,", (gets * 1e5).round() / 1e3)
        } else {
            "Every request".to_owned()
        };
        let query = match query {
            LoggedQuery::None => "without its query",
            LoggedQuery::Names => "with the names of its query's parameters",
            LoggedQuery::Values => "with its query",
        };
        words.push_str(&format!(" {which} is logged {format} {to}, {query}."));
    }
    match settings.trace.make {
        MadeTrace::No => {}
        MadeTrace::Unsampled => words.push_str(" A request without a trace gets one, not sampled."),
        MadeTrace::Sampled => words.push_str(" A request without a trace gets one, sampled."),
    }
    words
}

fn explain_route(route: &RouteSettings, rest: &str, settings: &Settings) -> String {
    let head = match &route.pattern {
        None => rest.to_owned(),
        Some(pattern) if pattern.to_string() == route.name => format!("Route {pattern}"),
        Some(pattern) => format!("Route {}: {pattern}", route.name),
    };
    let upstream = of_route(route).map(|text| format!("{}\n", bullet(&text))).unwrap_or_default();
    let Some(key) = &route.key else {
        let text = "Not protected: requests pass through, with or without a key.";
        return format!("{head}\n{upstream}{}", bullet(text));
    };
    let mut said = vec![
        format!("Key: {}", key_words(key)),
        format!("Scope: {}", scope_words(route, settings)),
        format!("Same request: {}", fingerprint_words(route)),
        format!("Concurrent duplicate: {}", busy_words(route)),
        format!("After a crash: {}", lapsed_words(route)),
        format!("When unknown: {}", probe_words(route)),
        format!("Responses: {}", status_words(&route.store_status)),
        format!("Replays: {}", retention_words(route)),
        format!("Store down: {}", store_down_words(route)),
        format!("Limits: {}", limit_words(route)),
        format!("Each caller: {}", caller_words(route)),
    ];
    said.extend(route.cors.as_ref().map(|cors| format!("Web pages: {}", cors_words(cors))));
    let lines: Vec<String> = said.iter().map(|text| bullet(text)).collect();
    format!("{head}\n{upstream}{}", lines.join("\n"))
}

fn bullet(text: &str) -> String {
    wrap(text, "  - ", "    ", WIDTH)
}

fn key_words(key: &KeySettings) -> String {
    let source = match &key.source {
        KeySource::Content => {
            return "made from the content: equal requests in one scope are one operation."
                .to_owned();
        }
        KeySource::Header(name) => format!("the header {}", header(name)),
        KeySource::Json(place) => format!("the value at {place} of the JSON body"),
        KeySource::Query(name) => format!("the query parameter `{name}`"),
        _ => "another part of the request".to_owned(),
    };
    let presence = if key.required {
        "required: a request without it gets 400."
    } else {
        "optional: a request without it passes unprotected."
    };
    let mut words = format!("{source}, {presence} It has {} to {} characters", key.min, key.max);
    match &key.format {
        KeyFormat::Any => {}
        KeyFormat::Uuid => words.push_str(" and must be a UUID"),
        KeyFormat::Regex(regex) => {
            words.push_str(&format!(" and must match `{regex}` as a whole"));
        }
    }
    match (&key.source, key.syntax) {
        (KeySource::Header(_), KeySyntax::Strict) => words.push_str(", in quotes (RFC 9651)."),
        (KeySource::Header(_), KeySyntax::Lenient) => {
            words.push_str(", in quotes, or bare without spaces.");
        }
        _ => words.push('.'),
    }
    words
}

fn fingerprint_words(route: &RouteSettings) -> String {
    let rule = &route.fingerprint;
    let mut parts = vec!["host".to_owned(), "method".to_owned(), "path".to_owned()];
    if rule.query {
        parts.push("query".to_owned());
    }
    if !rule.headers.is_empty() {
        parts.push(format!("the headers {}", headers(&rule.headers)));
    }
    let mut more = "";
    match &rule.body {
        BodyMode::Ignored => more = " The body does not count.",
        BodyMode::Raw => parts.push("the bytes of the body".to_owned()),
        BodyMode::Form => {
            parts.push("the body as a form, whatever the order of its fields".to_owned());
        }
        BodyMode::Json(places) => {
            parts.push(match places {
                JsonFields::All => "the body as JSON".to_owned(),
                JsonFields::Without(places) => format!("the body as JSON without {}", list(places)),
                JsonFields::Only(places) => format!("what the JSON body has at {}", list(places)),
            });
            more = " Key order and white space do not count.";
        }
        _ => parts.push("the body".to_owned()),
    }
    let end = match route.key.as_ref().map(|key| &key.source) {
        Some(KeySource::Content) => "",
        _ => " The same key with another request gets 422.",
    };
    format!("{} are the same.{more}{end}", list(&parts))
}

fn busy_words(route: &RouteSettings) -> String {
    let own = match route.when_busy {
        WhenBusy::Wait(time) => {
            format!("waits up to {} for the outcome, then gets 409.", duration(time))
        }
        _ => "gets 409 with Retry-After at once.".to_owned(),
    };
    if route.max_wait.is_zero() {
        return format!("{own} `Prefer: wait` is not honoured.");
    }
    let max = duration(route.max_wait);
    format!("{own} With `Prefer: wait` a caller may ask for up to {max}.")
}

fn lapsed_words(route: &RouteSettings) -> String {
    let lease = duration(route.policy.lease());
    let cap = duration(route.policy.lease_cap());
    let lapsed = match route.policy.on_lapsed() {
        OnLapsed::Hold => {
            "the operation is unknown: retries get 409 and nothing is executed until it is \
             resolved (at most once)."
        }
        OnLapsed::Rerun | OnLapsed::Resume if route.complete.is_some() => {
            "the gateway sends the stored request again, or the next request executes it, and it \
             may take effect twice (at least once)."
        }
        OnLapsed::Rerun | OnLapsed::Resume => {
            "the next request executes it again, and it may take effect twice (at least once)."
        }
    };
    let stored = match &route.complete {
        None => String::new(),
        Some(without) if without.is_empty() => {
            " Requests are stored with the claim, with all their headers.".to_owned()
        }
        Some(without) => format!(
            " Requests are stored with the claim, with all their headers but {}.",
            headers(without)
        ),
    };
    format!(
        "once its lease of {lease} has lapsed, {lapsed} While the gateway lives, it renews the \
         lease for up to {cap}.{stored}"
    )
}

fn probe_words(route: &RouteSettings) -> String {
    let Some(probe) = &route.probe else {
        return "no probe; an operator or the service resolves it.".to_owned();
    };
    let rules = |rules: &[ProbeRule], then: &str| match rules {
        [] => String::new(),
        rules => {
            let rules: Vec<String> = rules.iter().map(probe_rule_words).collect();
            format!(" {} means that it {then}.", rules.join(", or "))
        }
    };
    let what = match &probe.outcome {
        ProbeOutcome::Answer => "that response is replayed".to_owned(),
        ProbeOutcome::Json(place) => format!("what it has at {place} is replayed"),
        ProbeOutcome::Empty => "an empty response is replayed".to_owned(),
    };
    let status = match (&probe.outcome, probe.status) {
        (ProbeOutcome::Answer, None) => String::new(),
        (_, None) => ", with the status of the response".to_owned(),
        (_, Some(status)) => format!(", with the status {status}"),
    };
    format!(
        "after {} the upstream is asked `{} {}`.{}{} Everything else is asked again after {}, and \
         later after up to {}. At most {} probes at once, each for up to {}.",
        duration(probe.after),
        probe.request.method,
        probe.request.target,
        rules(&probe.happened, &format!("took effect, and {what}{status}")),
        rules(
            &probe.did_not_happen,
            &format!(
                "did not, which counts after {}: then the next request executes it",
                duration(probe.release_after)
            )
        ),
        duration(probe.pause),
        duration(probe.pause_max),
        probe.at_once,
        duration(probe.timeout)
    )
}

fn probe_rule_words(rule: &ProbeRule) -> String {
    let places: Vec<String> = rule
        .places
        .iter()
        .map(|(place, expected)| match expected {
            Expected::Anything => format!("something at {place}"),
            Expected::Json(json) => format!("{json} at {place}"),
            Expected::Fact(fact) => format!("the {} at {place}", fact.name()),
        })
        .collect();
    let of = rule.status.to_string();
    if places.is_empty() { of } else { format!("{of} with {}", list(&places)) }
}

fn status_words(rules: &[StatusRule]) -> String {
    let mut words = "401, 403, 407, 408, 421, 425, 429, and 503 with Retry-After release the key. \
                     2xx, 3xx, all other 4xx, 501 and 505 are kept and replayed. All other 5xx \
                     leave the operation unknown."
        .to_owned();
    let instead: Vec<String> = rules.iter().map(rule_words).collect();
    if !instead.is_empty() {
        words.push_str(&format!(" But on this route {}.", list(&instead)));
    }
    words
}

fn rule_words(rule: &StatusRule) -> String {
    let of = rule.of;
    let then = match rule.then {
        ResponseEffect::Final => "is kept",
        ResponseEffect::NotExecuted => "releases the key",
        ResponseEffect::Unknown => "is unknown",
    };
    format!("{of} {then}")
}

fn retention_words(route: &RouteSettings) -> String {
    let given = format!("given for {} from completion.", duration(route.policy.retention()));
    let after = match route.policy.after_retention() {
        AfterRetention::New => "After that the same key is a new operation.".to_owned(),
        AfterRetention::Refuse(life) => {
            format!("After that the key is refused with 409 for {}.", duration(life))
        }
    };
    let mut words = format!("{given} {after}");
    if !route.drop_headers.is_empty() {
        words.push_str(&format!(" Without the headers {}.", headers(&route.drop_headers)));
    }
    if !route.keep_headers.is_empty() {
        words.push_str(&format!(" With the headers {} too.", headers(&route.keep_headers)));
    }
    words
}

fn store_down_words(route: &RouteSettings) -> String {
    match route.on_store_down {
        WhenStoreDown::Pass => "requests pass unprotected, and their responses say so.",
        _ => "requests get 503, nothing is executed.",
    }
    .to_owned()
}

fn caller_words(route: &RouteSettings) -> String {
    let Some(limits) = &route.per_caller else {
        return "no limits; one caller can take all that there is.".to_owned();
    };
    let mut parts = Vec::new();
    if let Some(rate) = limits.max_rate() {
        parts.push(format!(
            "begins up to {} new operations in {}, up to {} of them at once",
            rate.operations(),
            duration(rate.per()),
            rate.max_burst()
        ));
    }
    if let Some(count) = limits.max_concurrent() {
        parts.push(format!("has up to {count} running at the same time"));
    }
    if let Some(bytes) = limits.max_stored_bytes() {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let retention = duration(route.policy.retention());
        parts.push(format!("has up to {} stored by this gateway in {retention}", size(bytes)));
    }
    format!(
        "{}. Over it 429 with Retry-After, and nothing is claimed. Replays are not limited. A \
         caller that the scope does not identify is known by its address.",
        list(&parts)
    )
}

fn cors_words(cors: &Cors) -> String {
    let whose = match cors.allowed_origins() {
        None => "of all origins".to_owned(),
        Some([one]) => format!("of {one}"),
        Some(all) => format!("of {}", list(all)),
    };
    let credentials = if cors.allows_credentials() { ", also with cookies" } else { "" };
    let preflights = if cors.answers_preflights() {
        let more = match cors.allowed_headers() {
            [] => String::new(),
            names => format!(" They may send {} too.", headers(names)),
        };
        format!("The gateway answers their preflights.{more}")
    } else {
        "The upstream answers their preflights.".to_owned()
    };
    format!("those {whose} may read the responses{credentials}. {preflights}")
}

fn limit_words(route: &RouteSettings) -> String {
    format!(
        "request bodies up to {}, stored responses up to {} (longer ones are delivered, and \
         replayed as 409 without their body). The upstream has {} to respond.{}",
        size(route.request_body),
        size(route.stored_response_body),
        duration(route.response_timeout),
        match route.path_escapes {
            PathEscapes::Refuse => "",
            PathEscapes::Allow => " `%2F`, `%5C` and `%00` in a path are parts of a name.",
        }
    )
}
