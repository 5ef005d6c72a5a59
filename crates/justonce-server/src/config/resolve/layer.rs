//! What `[defaults]` or one `[[route]]` says, before they are laid over each other.

use std::time::Duration;

use http::HeaderName;
use justonce::{AfterRetention, JsonPointer, MAX_BODY_BYTES, MAX_LEASE, MIN_LEASE, OnLapsed};

use super::complete;
use super::gateway::MAX_REQUEST_BYTES;
use super::key::KeyLayer;
use super::probe::ProbeLayer;
use super::values::{MAX_WAIT, RETENTIONS, after_retention, on_concurrent, scope_part, statuses};
use crate::config::convert::{
    boolean, choice, header, list, one_or_more, pointer, size, some_time, time,
};
use crate::config::report::Report;
use crate::config::section::{Section, Set};
use crate::config::settings::{
    OnStatus, PathEscapes, ScopePart, StatusSet, WhenBusy, WhenStoreDown,
};

/// What a table says about its routes; nothing where it says nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Layer {
    pub(super) key: KeyLayer,
    pub(super) path_escapes: Option<Set<PathEscapes>>,
    pub(super) scope: Option<Set<Vec<ScopePart>>>,
    pub(super) fingerprint: FingerprintLayer,
    pub(super) on_concurrent: Option<Set<WhenBusy>>,
    pub(super) max_wait: Option<Set<Duration>>,
    pub(super) on_lapsed: Option<Set<OnLapsed>>,
    pub(super) on_store_down: Option<Set<WhenStoreDown>>,
    pub(super) store_status: Vec<(StatusSet, OnStatus)>,
    pub(super) lease: Option<Set<Duration>>,
    pub(super) lease_cap: Option<Set<Duration>>,
    pub(super) retention: Option<Set<Duration>>,
    pub(super) after_retention: Option<Set<AfterRetention>>,
    pub(super) response_timeout: Option<Set<Duration>>,
    pub(super) request_body: Option<Set<usize>>,
    pub(super) stored_response_body: Option<Set<usize>>,
    pub(super) keep_unframed: Option<Set<bool>>,
    pub(super) drop_headers: Option<Set<Vec<HeaderName>>>,
    pub(super) keep_headers: Option<Set<Vec<HeaderName>>>,
    pub(super) complete: Option<Set<bool>>,
    pub(super) complete_without: Option<Set<Vec<HeaderName>>>,
    pub(super) probe: ProbeLayer,
}

/// What a table says about fingerprints.
#[derive(Clone, Debug, Default)]
pub(super) struct FingerprintLayer {
    pub(super) body: Option<Set<BodyWord>>,
    pub(super) ignore: Option<Set<Vec<JsonPointer>>>,
    pub(super) only: Option<Set<Vec<JsonPointer>>>,
    pub(super) headers: Option<Set<Vec<HeaderName>>>,
    pub(super) query: Option<Set<bool>>,
}

/// What `fingerprint.body` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyWord {
    Raw,
    Json,
    Form,
    None,
}

const BODIES: &[(&str, BodyWord)] = &[
    ("raw", BodyWord::Raw),
    ("json", BodyWord::Json),
    ("form", BodyWord::Form),
    ("none", BodyWord::None),
];
const ON_LAPSED: &[(&str, OnLapsed)] = &[("hold", OnLapsed::Hold), ("rerun", OnLapsed::Rerun)];
const PATH_ESCAPES: &[(&str, PathEscapes)] =
    &[("refuse", PathEscapes::Refuse), ("allow", PathEscapes::Allow)];
const ON_STORE_DOWN: &[(&str, WhenStoreDown)] =
    &[("refuse", WhenStoreDown::Refuse), ("pass", WhenStoreDown::Pass)];
const UNFRAMED: &[(&str, bool)] = &[("unknown", false), ("keep", true)];

impl Layer {
    /// Reads a table.
    pub(super) fn read(section: &Section<'_>, report: &mut Report) -> Self {
        let layer = Self {
            key: KeyLayer::read(section, report),
            path_escapes: section.get("path_escapes", report, choice(PATH_ESCAPES)),
            scope: section.get("scope", report, one_or_more(scope_part)),
            fingerprint: FingerprintLayer::read(&section.inside("fingerprint"), report),
            on_concurrent: section.get("on_concurrent", report, on_concurrent),
            max_wait: section.get("max_wait", report, time(Duration::ZERO..=MAX_WAIT)),
            on_lapsed: section.get("on_lapsed", report, choice(ON_LAPSED)),
            on_store_down: section.get("on_store_down", report, choice(ON_STORE_DOWN)),
            store_status: statuses(section, report),
            lease: section.get("lease", report, time(MIN_LEASE..=MAX_LEASE)),
            lease_cap: section.get("lease_cap", report, time(MIN_LEASE..=MAX_LEASE)),
            retention: section.get("retention", report, time(RETENTIONS)),
            after_retention: section.get("after_retention", report, after_retention),
            response_timeout: section.get("response_timeout", report, some_time),
            request_body: section.get("request_body", report, size(0..=MAX_REQUEST_BYTES)),
            stored_response_body: section.get(
                "stored_response_body",
                report,
                size(0..=MAX_BODY_BYTES),
            ),
            keep_unframed: section.get("unframed", report, choice(UNFRAMED)),
            drop_headers: section.get("drop_headers", report, list(header)),
            keep_headers: section.get("keep_headers", report, list(header)),
            complete: section.get("complete", report, boolean),
            complete_without: section.get("complete_without", report, list(header)),
            probe: ProbeLayer::read(&section.inside("probe"), report),
        };
        layer.check(report);
        layer
    }

    /// What cannot be said together in one table.
    fn check(&self, report: &mut Report) {
        complete::check(self, report);
        if let (Some(drop), Some(keep)) = (&self.drop_headers, &self.keep_headers)
            && let Some(both) = keep.value.iter().find(|name| drop.value.contains(name))
        {
            let place = report.name_of(&drop.origin);
            let message = format!("`keep_headers`: `{both}` is also in `drop_headers` ({place})");
            report.at(&keep.origin, message, None);
        }
        if let Some(scope) = &self.scope {
            let mut seen = Vec::new();
            for part in &scope.value {
                if seen.contains(&part) {
                    let message = format!("`scope`: `{part}` is listed twice");
                    report.at(&scope.origin, message, None);
                }
                seen.push(part);
            }
            let tenants = seen.iter().filter(|part| matches!(part, ScopePart::Tenant(_)));
            if tenants.count() > 1 {
                let message = "`scope`: a caller has one tenant, and two headers tell it";
                let help = "name the other header without `tenant:`".to_owned();
                report.at(&scope.origin, message.to_owned(), Some(help));
            }
        }
    }

    /// Lays this over what holds for all routes.
    pub(super) fn over(mut self, below: &Self) -> Self {
        self.settle_headers(below);
        let mut store_status = below.store_status.clone();
        store_status.retain(|(set, _)| !self.store_status.iter().any(|(other, _)| other == set));
        store_status.extend(self.store_status);
        // Codes come after classes, so that the last that fits counts.
        store_status.sort_by_key(|(set, _)| *set);
        let below = below.clone();
        Self {
            key: self.key.over(&below.key),
            path_escapes: self.path_escapes.or(below.path_escapes),
            scope: self.scope.or(below.scope),
            fingerprint: self.fingerprint.over(below.fingerprint),
            on_concurrent: self.on_concurrent.or(below.on_concurrent),
            max_wait: self.max_wait.or(below.max_wait),
            on_lapsed: self.on_lapsed.or(below.on_lapsed),
            on_store_down: self.on_store_down.or(below.on_store_down),
            store_status,
            lease: self.lease.or(below.lease),
            lease_cap: self.lease_cap.or(below.lease_cap),
            retention: self.retention.or(below.retention),
            after_retention: self.after_retention.or(below.after_retention),
            response_timeout: self.response_timeout.or(below.response_timeout),
            request_body: self.request_body.or(below.request_body),
            stored_response_body: self.stored_response_body.or(below.stored_response_body),
            keep_unframed: self.keep_unframed.or(below.keep_unframed),
            drop_headers: self.drop_headers,
            keep_headers: self.keep_headers,
            complete: self.complete.or(below.complete),
            complete_without: self.complete_without.or(below.complete_without),
            probe: self.probe.over(below.probe),
        }
    }

    /// A route that drops a header does not keep it because all others do, and the other way.
    fn settle_headers(&mut self, below: &Self) {
        let without = |list: &Option<Set<Vec<HeaderName>>>,
                       other: &Option<Set<Vec<HeaderName>>>| {
            let mut list = list.clone()?;
            list.value.retain(|name| !other.as_ref().is_some_and(|o| o.value.contains(name)));
            Some(list)
        };
        let drop = self.drop_headers.clone();
        let keep = self.keep_headers.clone();
        self.drop_headers = drop.clone().or_else(|| without(&below.drop_headers, &keep));
        self.keep_headers = keep.or_else(|| without(&below.keep_headers, &drop));
    }
}

impl FingerprintLayer {
    fn read(section: &Section<'_>, report: &mut Report) -> Self {
        let layer = Self {
            body: section.get("body", report, choice(BODIES)),
            ignore: section.get("ignore", report, list(pointer)),
            only: section.get("only", report, list(pointer)),
            headers: section.get("headers", report, list(header)),
            query: section.get("query", report, boolean),
        };
        layer.check(report);
        layer
    }

    /// What cannot be said together in one table.
    fn check(&self, report: &mut Report) {
        if let (Some(only), Some(ignore)) = (&self.only, &self.ignore) {
            let place = report.name_of(&only.origin);
            let message = format!("`ignore` and `only` ({place}) exclude each other");
            report.at(&ignore.origin, message, Some("keep one of them".into()));
        }
        let not_json = self.body.as_ref().is_some_and(|set| set.value != BodyWord::Json);
        for (name, set) in [("ignore", &self.ignore), ("only", &self.only)] {
            if let (true, Some(set)) = (not_json, set) {
                let message = format!("`{name}` lists places in JSON, and `body` is not \"json\"");
                report.at(&set.origin, message, None);
            }
        }
    }

    fn over(self, below: Self) -> Self {
        // The lists go together: a route that says what counts leaves behind what does not count.
        let (ignore, only) = match (&self.ignore, &self.only) {
            (None, None) => (below.ignore, below.only),
            _ => (self.ignore, self.only),
        };
        Self {
            body: self.body.or(below.body),
            ignore,
            only,
            headers: self.headers.or(below.headers),
            query: self.query.or(below.query),
        }
    }
}
