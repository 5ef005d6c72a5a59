//! The settings of routes, as rules of the layer.

use anyhow::Context;
use justonce::http::{
    Cors, Idempotency, IdempotencyBuilder, KeyFormat as Format, KeyPresence, KeyShape, Rule,
    ScopePart, StatusRules,
};
use regex::Regex;

use crate::config::{KeyFormat, KeySettings, ResponseSet, RouteSettings, Settings, StatusSet};

/// The layer's settings, with all routes.
///
/// # Errors
///
/// If an expression does not compile; the configuration was checked, so this is a surprise.
pub(crate) fn layer(
    engine: justonce::Engine,
    settings: &Settings,
) -> anyhow::Result<IdempotencyBuilder> {
    let mut builder = Idempotency::builder(engine);
    for route in &settings.routes {
        let pattern = route.pattern.clone().context("a route without a pattern")?;
        builder = builder.route(&route.name, pattern, rule(route, settings)?);
    }
    if let Some(base) = &settings.problems_base {
        builder = builder.problems_base(base.as_str());
    }
    Ok(builder.default_rule(rule(&settings.default_route, settings)?))
}

/// The rule of one route.
///
/// # Errors
///
/// As [`layer`].
pub(crate) fn rule(route: &RouteSettings, settings: &Settings) -> anyhow::Result<Rule> {
    let rule = Rule::default()
        .scope(route.scope.clone())
        .path_escapes(route.path_escapes)
        .fingerprint(route.fingerprint.clone())
        .when_busy(route.when_busy)
        .max_wait(route.max_wait)
        .with_policy(route.policy)
        .when_store_down(route.on_store_down)
        .statuses(statuses(route))
        .max_request_bytes(route.request_body)
        .max_stored_bytes(route.stored_response_body)
        .drop_headers(route.drop_headers.clone())
        .keep_headers(route.keep_headers.clone());
    let rule = match &route.complete {
        None => rule,
        Some(without) => rule.store_requests(without.clone()),
    };
    let rule = match route.per_caller {
        None => rule,
        Some(limits) => rule.caller_limits(limits),
    };
    let rule = match &route.cors {
        None => rule,
        Some(cors) => rule.cors(with_token_headers(cors.clone(), route, settings)),
    };
    match &route.key {
        None => Ok(rule.key_presence(KeyPresence::Off)),
        Some(key) => with_key(rule, key),
    }
}

/// Pages may also send the headers that tokens are in, where those count.
fn with_token_headers(cors: Cors, route: &RouteSettings, settings: &Settings) -> Cors {
    let is_claim = |part: &ScopePart| matches!(part, ScopePart::Claim(_));
    if !route.scope.iter().any(is_claim) {
        return cors;
    }
    let more = settings.jwt.iter().map(|issuer| issuer.header.clone());
    let headers: Vec<_> = cors.allowed_headers().iter().cloned().chain(more).collect();
    cors.headers(headers)
}

fn with_key(rule: Rule, key: &KeySettings) -> anyhow::Result<Rule> {
    let presence = if key.required { KeyPresence::Required } else { KeyPresence::Optional };
    let shape = match &key.format {
        KeyFormat::Any => KeyShape::Any,
        KeyFormat::Uuid => KeyShape::Uuid,
        KeyFormat::Regex(text) => KeyShape::Matches(Regex::new(&format!("^(?:{text})$"))?),
    };
    Ok(rule
        .key_presence(presence)
        .key_source(key.source.clone())
        .key_syntax(key.syntax)
        .key_format(Format::default().length(key.min..=key.max).shape(shape)))
}

fn statuses(route: &RouteSettings) -> StatusRules {
    route.store_status.iter().fold(StatusRules::default(), |rules, rule| match rule.of {
        ResponseSet::Http(StatusSet::Class(class)) => rules.class(class, rule.then),
        ResponseSet::Http(StatusSet::Code(code)) => rules.code(code, rule.then),
        ResponseSet::Grpc(status) => rules.grpc(status, rule.then),
    })
}
