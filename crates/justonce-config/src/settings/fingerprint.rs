//! `fingerprint`: what counts as the same request.

use http::HeaderName;
use justonce_core::JsonPointer;
use justonce_http::{BodyMode, FingerprintRule, JsonFields};

use crate::declare::settings;
use crate::kind::{choice, flag, header, list, pointer};
use crate::report::Report;

settings! {
    /// What one source says about fingerprints.
    layer FingerprintLayer, check check, inherit inherit {
        /// How bodies are compared: `raw`, `json`, `form`, `none`.
        body: Body = choice(BODY), default "json", example "raw";
        /// Places of the JSON body that do not count.
        ignore: Vec<JsonPointer> = list(pointer), default "", example "/timestamp";
        /// The only places of the JSON body that count.
        only: Vec<JsonPointer> = list(pointer), default "", example "/amount, /currency";
        /// Headers that count.
        headers: Vec<HeaderName> = list(header), default "", example "content-type";
        /// Whether the query counts.
        query: bool = flag(), default "true", example "false";
    }
}

/// The words of `body`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Raw,
    Json,
    Form,
    None,
}

const BODY: &[(&str, Body)] =
    &[("raw", Body::Raw), ("json", Body::Json), ("form", Body::Form), ("none", Body::None)];

/// What cannot be said together in one table.
fn check(layer: &FingerprintLayer, report: &mut Report) {
    if let (Some(only), Some(ignore)) = (&layer.only, &layer.ignore) {
        let place = report.name_of(&only.origin);
        let message = format!("`ignore` and `only` ({place}) exclude each other");
        report.at(&ignore.origin, message, Some("keep one of them".into()));
    }
    let not_json = layer.body.as_ref().is_some_and(|set| set.value != Body::Json);
    for (name, set) in [("ignore", &layer.ignore), ("only", &layer.only)] {
        if let (true, Some(set)) = (not_json, set) {
            let message = format!("`{name}` lists places in JSON, and `body` is not \"json\"");
            report.at(&set.origin, message, None);
        }
    }
}

/// The lists go together: a route that says what counts leaves behind what does not count.
fn inherit(
    own: FingerprintLayer,
    mut below: FingerprintLayer,
) -> (FingerprintLayer, FingerprintLayer) {
    if own.ignore.is_some() || own.only.is_some() {
        (below.ignore, below.only) = (None, None);
    }
    (own, below)
}

/// The rule of a route.
pub(super) fn resolve(layer: FingerprintLayer) -> Option<FingerprintRule> {
    let list = |list: Option<crate::section::Sourced<Vec<JsonPointer>>>| {
        list.map(|set| set.value).filter(|places| !places.is_empty())
    };
    let places = match (list(layer.ignore), list(layer.only)) {
        (Some(places), _) => JsonFields::Without(places),
        (None, Some(places)) => JsonFields::Only(places),
        (None, None) => JsonFields::All,
    };
    let body = match layer.body?.value {
        Body::Raw => BodyMode::Raw,
        Body::Json => BodyMode::Json(places),
        Body::Form => BodyMode::Form,
        Body::None => BodyMode::Ignored,
    };
    let rule = FingerprintRule::default().body(body);
    Some(rule.query(layer.query?.value).headers(layer.headers?.value))
}
