//! One complete route.

use std::time::Duration;

use justonce::DEFAULT_WAIT;
use justonce::Policy;
use justonce::http::Pattern;

use super::layer::{BodyWord, FingerprintLayer, Layer};
use super::policy::first_set;
use super::{complete, key, policy, probe};
use crate::config::report::Report;
use crate::config::section::Set;
use crate::config::settings::{
    BodyMode, FingerprintRule, PathEscapes, Places, RouteSettings, ScopePart, StatusRule, WhenBusy,
    WhenStoreDown,
};
use crate::config::tree::Origin;
use crate::config::words;

/// What `[limits]` and `[timeouts]` say for all routes.
#[derive(Clone, Debug)]
pub(super) struct Base {
    pub(super) request_body: usize,
    pub(super) stored_response_body: usize,
    pub(super) response_timeout: Set<Duration>,
}

impl Base {
    /// How long upstreams may take unless anybody says otherwise.
    pub(super) const fn response_timeout() -> Set<Duration> {
        Set { value: Duration::from_secs(60), origin: Origin::Default }
    }
}

/// Makes a route complete. Nothing comes back if something in it is wrong; that was reported.
pub(super) fn resolve(
    layer: &Layer,
    name: String,
    pattern: Option<Pattern>,
    base: &Base,
    report: &mut Report,
) -> Option<RouteSettings> {
    let key = key::resolve(layer, report);
    let policy = policy::resolve(layer, report);
    let (when_busy, max_wait) = waiting(layer, report);
    let timeout = layer.response_timeout.as_ref().unwrap_or(&base.response_timeout);
    if let Some(policy) = &policy {
        check_timeout(layer, timeout, policy, report);
    }
    let scope = layer.scope.as_ref().map_or_else(default_scope, |set| set.value.clone());
    let cap = policy.as_ref().map_or_else(Duration::default, Policy::lease_cap);
    let probe = probe::resolve(layer, &scope, cap, report);
    let rules = layer.store_status.iter().map(|(of, then)| StatusRule { of: *of, then: *then });
    Some(RouteSettings {
        name,
        pattern,
        key,
        path_escapes: value_or(&layer.path_escapes, PathEscapes::Refuse),
        scope,
        fingerprint: fingerprint(&layer.fingerprint),
        when_busy,
        max_wait,
        policy: policy?,
        on_store_down: value_or(&layer.on_store_down, WhenStoreDown::Refuse),
        store_status: rules.collect(),
        response_timeout: timeout.value,
        request_body: complete::longest_body(
            layer,
            value_or(&layer.request_body, base.request_body),
        ),
        stored_response_body: value_or(&layer.stored_response_body, base.stored_response_body),
        keep_unframed: value_or(&layer.keep_unframed, false),
        drop_headers: value_or(&layer.drop_headers, Vec::new()),
        keep_headers: value_or(&layer.keep_headers, Vec::new()),
        complete: complete::resolve(layer, report),
        probe,
    })
}

fn value_or<T: Clone>(set: &Option<Set<T>>, default: T) -> T {
    set.as_ref().map_or(default, |set| set.value.clone())
}

fn default_scope() -> Vec<ScopePart> {
    vec![ScopePart::Caller]
}

fn fingerprint(said: &FingerprintLayer) -> FingerprintRule {
    let places = match (&said.ignore, &said.only) {
        (Some(set), _) if !set.value.is_empty() => Places::Without(set.value.clone()),
        (_, Some(set)) if !set.value.is_empty() => Places::Only(set.value.clone()),
        _ => Places::All,
    };
    let body = match value_or(&said.body, BodyWord::Json) {
        BodyWord::Raw => BodyMode::Raw,
        BodyWord::Json => BodyMode::Json(places),
        BodyWord::Form => BodyMode::Form,
        BodyWord::None => BodyMode::Ignored,
    };
    FingerprintRule {
        body,
        query: value_or(&said.query, true),
        headers: value_or(&said.headers, Vec::new()),
    }
}

/// How long duplicates wait, and how long they may ask to wait.
fn waiting(layer: &Layer, report: &mut Report) -> (WhenBusy, Duration) {
    let busy = value_or(&layer.on_concurrent, WhenBusy::Reject);
    let own = match busy {
        WhenBusy::Reject => Duration::ZERO,
        WhenBusy::Wait(time) => time,
    };
    let Some(max) = &layer.max_wait else {
        return (busy, DEFAULT_WAIT.max(own));
    };
    if own > max.value {
        let message = format!(
            "`on_concurrent` waits {}, longer than `max_wait` ({}, {})",
            words::duration(own),
            words::duration(max.value),
            report.name_of(&max.origin),
        );
        let origin = layer.on_concurrent.as_ref().map_or(&max.origin, |set| &set.origin);
        report.at(origin, message, None);
    }
    (busy, max.value)
}

/// An answer that comes after the claim ended could not be stored any more.
fn check_timeout(layer: &Layer, timeout: &Set<Duration>, policy: &Policy, report: &mut Report) {
    let cap = policy.lease_cap();
    if timeout.value <= cap {
        return;
    }
    let message = format!(
        "the upstream may take {} to answer, and the claim ends after {} (`lease_cap`)",
        words::duration(timeout.value),
        words::duration(cap)
    );
    let origin = match &layer.response_timeout {
        Some(set) => set.origin.clone(),
        None => first_set(&layer.lease_cap, &Some(timeout.clone())),
    };
    report.at(&origin, message, Some("raise `lease_cap` or lower the timeout".into()));
}
