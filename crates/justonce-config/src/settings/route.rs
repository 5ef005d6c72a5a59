//! The policy of a route, and what it requires of requests.

use std::time::Duration;

use http::HeaderName;
use justonce_core::{MAX_BODY_BYTES, Policy};
use justonce_http::{
    CallerLimits, Cors, FingerprintRule, PathEscapes, Pattern, ScopePart, WhenBusy, WhenStoreDown,
};

use super::complete::{self, CompleteLayer};
use super::cors::{self, CorsLayer};
use super::fingerprint::{self, FingerprintLayer};
use super::key::{self, KeyLayer, KeySettings};
use super::per_caller::{self, PerCallerLayer};
use super::policy::{self, PolicyLayer};
use super::probe::{self, ProbeLayer, ProbeSettings};
use super::scope;
use super::status::{self, StatusRule, statuses};
use super::tables::MAX_REQUEST_BYTES;
use super::upstreams;
use super::values::{WAITS, on_concurrent};
use crate::declare::{settings, tables};
use crate::kind::{choice, custom, header, list, one_or_more, size, time, timeout};
use crate::report::Report;
use crate::section::{Sourced, first_set};
use crate::tree::Origin;
use crate::words;

tables! {
    /// What `[defaults]` or one `[[route]]` says.
    RouteTable, check check {
        /// Keys.
        group key: KeyLayer;
        /// What is used as it is written.
        group route: RouteLayer;
        /// What counts as the same request.
        table fingerprint: FingerprintLayer;
        /// Leases and retention.
        group policy: PolicyLayer;
        /// Stored requests.
        group complete: CompleteLayer;
        /// How the upstream is asked what became of an unknown operation.
        table probe: ProbeLayer;
        /// What each caller may use.
        table per_caller: PerCallerLayer;
        /// Which web pages of other origins may read the responses.
        table cors: CorsLayer;
    }
}

settings! {
    /// The policy of a route, and what it requires of requests.
    pub struct RouteSettings from RouteLayer, inherit inherit with {
        /// Its name in metrics and logs.
        name: String,
        /// Which requests it is for; nothing for the default route: every other POST and PATCH.
        pattern: Option<Pattern>,
        /// Where its keys come from and how they are checked; nothing if it is not protected.
        key: Option<KeySettings>,
        /// What counts as the same request.
        fingerprint: FingerprintRule,
        /// Leases, retention, and what becomes of lapsed claims.
        policy: Policy,
        /// The headers that are not stored with requests; nothing if requests are not stored, and
        /// operations not completed without their callers.
        complete: Option<Vec<HeaderName>>,
        /// How the upstream is asked about unknown operations; nothing if it is not.
        probe: Option<ProbeSettings>,
        /// What each caller may use; nothing if nothing is limited.
        per_caller: Option<CallerLimits>,
        /// Which web pages may read the responses; nothing if the gateway says nothing about that.
        cors: Option<Cors>,
    } {
        /// The name of the [upstream](#upstreams) that its requests go to.
        upstream: String = custom(upstreams::name), default "default", example "payments";
        /// What a request gets whose path has `%2F`, a backslash or `%00` in it: `refuse` is 400,
        /// `allow` takes it for a part of a name ([more](http.md#paths)).
        path_escapes: PathEscapes =
            choice(&[("refuse", PathEscapes::Refuse), ("allow", PathEscapes::Allow)]),
            default "refuse", example "allow";
        /// Whose namespace keys live in: `caller` (`Authorization`, or `X-Api-Key`, or the client's
        /// certificate), `jwt:CLAIM` (of a verified token), `certificate`, `header:NAME`,
        /// `cookie:NAME` and `address` (the caller), `tenant:header:NAME`; of callers only a hash
        /// is kept ([more](http.md#scopes)).
        scope: Vec<ScopePart> = one_or_more(scope::part),
            default "caller", example "cookie:session, tenant:header:x-tenant";
        /// What a duplicate of a running operation gets: `reject` is 409, `wait TIME` is the
        /// outcome if it comes in time.
        when_busy as "on_concurrent": WhenBusy = custom(on_concurrent),
            default "reject", example "wait 10s";
        /// How long a caller may ask to wait with `Prefer: wait`.
        max_wait: Duration = time(WAITS), default "30s", example "1m";
        /// While the store cannot be reached: `refuse` is 503, `pass` lets requests through
        /// unprotected.
        on_store_down: WhenStoreDown =
            choice(&[("refuse", WhenStoreDown::Refuse), ("pass", WhenStoreDown::Pass)]),
            default "refuse", example "pass";
        /// What becomes of an operation by its response's status or class, or its status of gRPC
        /// such as `ABORTED`: `keep`, `release` or `unknown`.
        store_status: Vec<StatusRule> = statuses(), example "404=release, 5xx=keep";
        /// How long the upstream may take to respond; without it, `timeouts.response`.
        response_timeout: Duration = timeout(), like "timeouts.response", example "5m";
        /// The longest request body; without it, `limits.request_body`.
        request_body: usize = size(0..=MAX_REQUEST_BYTES),
            like "limits.request_body", example "16MB";
        /// The longest response body that is stored; without it, `limits.stored_response_body`.
        stored_response_body: usize = size(0..=MAX_BODY_BYTES),
            like "limits.stored_response_body", example "1MB";
        /// What becomes of an operation whose response, of HTTP/1.1, is ended only by the end of
        /// its connection, so that it may be cut: `unknown` does not store it, `keep` does.
        keep_unframed as "unframed": bool = choice(&[("unknown", false), ("keep", true)]),
            default "unknown", example "keep";
        /// Headers of responses that are not stored, beside those that never are.
        drop_headers: Vec<HeaderName> = list(header), default "", example "x-request-id";
        /// Headers of responses that are stored although they would not be.
        keep_headers: Vec<HeaderName> = list(header), default "", example "set-cookie";
    }
}

/// What cannot be said together in one table.
fn check(table: &RouteTable, report: &mut Report) {
    complete::check(table, report);
    let route = &table.route;
    if let (Some(drop), Some(keep)) = (&route.drop_headers, &route.keep_headers)
        && let Some(both) = keep.value.iter().find(|name| drop.value.contains(name))
    {
        let place = report.name_of(&drop.origin);
        let message = format!("`keep_headers`: `{both}` is also in `drop_headers` ({place})");
        report.at(&keep.origin, message, None);
    }
    if let Some(scope) = &route.scope {
        scope::check(scope, report);
    }
}

/// A route that drops a header does not keep it because all others do, and the other way. Statuses
/// are inherited one by one.
fn inherit(mut own: RouteLayer, mut below: RouteLayer) -> (RouteLayer, RouteLayer) {
    if let (Some(own), Some(below)) = (&mut own.store_status, &below.store_status) {
        status::merge(&mut own.value, &below.value);
    }
    type Headers = Option<Sourced<Vec<HeaderName>>>;
    let remove = |list: &mut Headers, other: &Headers| {
        if let (Some(list), Some(other)) = (list, other) {
            list.value.retain(|name| !other.value.contains(name));
        }
    };
    remove(&mut below.drop_headers, &own.keep_headers);
    remove(&mut below.keep_headers, &own.drop_headers);
    (own, below)
}

/// Makes a route complete. Nothing comes back if something in it is wrong; that was reported.
pub(super) fn resolve(
    mut table: RouteTable,
    name: String,
    pattern: Option<Pattern>,
    timeout: &Sourced<Duration>,
    report: &mut Report,
) -> Option<RouteSettings> {
    let key = key::resolve(table.key.clone(), report);
    let policy = policy::resolve(&table.policy, table.complete.is_on(), report);
    wait_long_enough(&mut table.route, report);
    if let Some(policy) = &policy {
        check_timeout(&table, timeout, policy, report);
    }
    let probe = probe::resolve(&table, policy.as_ref().map(Policy::lease_cap), report);
    let complete = complete::resolve(&table, report);
    let RouteTable { mut route, fingerprint, complete: stored, cors, per_caller, .. } = table;
    let cors = cors::resolve(cors, report);
    let per_caller = per_caller::resolve(&per_caller, report);
    route.response_timeout.get_or_insert_with(|| timeout.clone());
    if let Some(body) = &mut route.request_body {
        body.value = complete::longest_body(&stored, body.value);
    }
    let fingerprint = fingerprint::resolve(fingerprint)?;
    let policy = policy?;
    RouteSettings::of(
        route,
        name,
        pattern,
        key,
        fingerprint,
        policy,
        complete,
        probe,
        per_caller,
        cors,
    )
}

/// Callers may ask to wait as long as duplicates wait anyway.
fn wait_long_enough(route: &mut RouteLayer, report: &mut Report) {
    let (Some(busy), Some(max)) = (&route.when_busy, &mut route.max_wait) else { return };
    let WhenBusy::Wait(own) = busy.value else { return };
    if own <= max.value {
        return;
    }
    if max.origin == Origin::Default {
        max.value = own;
        return;
    }
    let message = format!(
        "`on_concurrent` waits {}, longer than `max_wait` ({}, {})",
        words::duration(own),
        words::duration(max.value),
        report.name_of(&max.origin),
    );
    report.at(&busy.origin, message, None);
}

/// A response that comes after the claim ended could not be stored any more.
fn check_timeout(
    table: &RouteTable,
    fallback: &Sourced<Duration>,
    policy: &Policy,
    report: &mut Report,
) {
    let own = table.route.response_timeout.as_ref();
    let (timeout, cap) = (own.unwrap_or(fallback), policy.lease_cap());
    if timeout.value <= cap {
        return;
    }
    let message = format!(
        "the upstream may take {} to respond, and the claim ends after {} (`lease_cap`)",
        words::duration(timeout.value),
        words::duration(cap)
    );
    let origin = match (own, &table.policy.lease_cap) {
        (None, Some(lease_cap)) => first_set([&lease_cap.origin, &timeout.origin]),
        _ => timeout.origin.clone(),
    };
    report.at(&origin, message, Some("raise `lease_cap` or lower the timeout".into()));
}
