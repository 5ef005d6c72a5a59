//! `cors`: which web pages of other origins may read the responses of a route.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::HeaderName;
use justonce_http::{Cors, Origin, Preflights};

use crate::declare::settings;
use crate::invalid::{Invalid, Read};
use crate::kind::{choice, flag, header, list, one_or_more, repeated, text, time};
use crate::report::Report;
use crate::section::first_set;
use crate::tree::Node;

/// How long browsers may keep the answer to a preflight; none keeps it longer.
const AGES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(24 * 3600);

settings! {
    /// What one source says about cross-origin requests.
    layer CorsLayer, check check {
        /// Whose web pages may read the responses, those of the gateway itself among them: origins
        /// as browsers send them, or `*` for all; without any, the gateway adds no CORS headers
        /// ([more](http.md#web-pages-of-other-origins)).
        origins: Vec<CorsOrigin> = one_or_more(origin),
            default "", example "https://shop.example.com, http://localhost:5173";
        /// Whether pages may send cookies and client certificates; not with `*`.
        credentials: bool = flag(), default "false", example "true";
        /// Who answers preflights: `pass` is the upstream, `answer` is the gateway.
        preflight: Preflights =
            choice(&[("pass", Preflights::Pass), ("answer", Preflights::Answer)]),
            default "pass", example "answer";
        /// Headers that pages may send according to the gateway's answers to preflights, beside
        /// those that the route reads, `Content-Type` and `Prefer`.
        headers: Vec<HeaderName> = list(header), default "", example "x-request-id";
        /// How long browsers may keep such an answer.
        max_age: Duration = time(AGES), default "10m", example "2h";
    }
}

/// An item of `origins`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CorsOrigin {
    /// All pages.
    Any,
    /// Those of this origin.
    One(Origin),
}

/// What cannot be said together in one table.
fn check(layer: &CorsLayer, report: &mut Report) {
    let Some(origins) = &layer.origins else { return };
    if origins.value.len() > 1 && origins.value.contains(&CorsOrigin::Any) {
        let message = "`cors.origins`: `*` stands for all, and others are listed beside it";
        report.at(&origins.origin, message.to_owned(), Some("keep one of them".to_owned()));
    }
}

/// The setting of a route; nothing if no origin may read its responses. What is wrong is reported.
pub(super) fn resolve(layer: CorsLayer, report: &mut Report) -> Option<Cors> {
    let (origins, credentials) = (layer.origins?, layer.credentials?);
    let named: Option<Vec<Origin>> = origins
        .value
        .into_iter()
        .map(|origin| match origin {
            CorsOrigin::Any => None,
            CorsOrigin::One(origin) => Some(origin),
        })
        .collect();
    if named.as_ref().is_some_and(Vec::is_empty) {
        return None;
    }
    if named.is_none() && credentials.value {
        let message = "`cors.credentials` and `cors.origins = \"*\"`: then every web page could \
                       act with the cookies of its visitors";
        let origin = first_set([&credentials.origin, &origins.origin]);
        report.at(&origin, message.to_owned(), Some("name the origins".to_owned()));
    }
    let cors = named.map_or_else(Cors::any, Cors::origins);
    Some(
        cors.credentials(credentials.value)
            .preflights(layer.preflight?.value)
            .headers(layer.headers?.value)
            .max_age(layer.max_age?.value),
    )
}

fn origin(node: &Node) -> Read<CorsOrigin> {
    let text = text(node)?.trim();
    if text == "*" {
        return Ok(CorsOrigin::Any);
    }
    let parsed = Origin::parse(text);
    let wrong = |why| Invalid::at(node, format!("{} is no origin: {why}", repeated(text)));
    parsed.map(CorsOrigin::One).map_err(wrong)
}
