//! One store, an engine and a layer on it, and callers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use justonce_core::engine::Limits;
use justonce_core::memory::MemoryStore;
use justonce_core::store::{ListQuery, Maintenance, Records};
use justonce_core::{
    Engine, Entropy, OnLapsed, Policy, PolicyBuilder, StateName, TimerClock, Timestamp,
};
use justonce_http::{Idempotency, IdempotencyBuilder, Pattern, Protected, ResponseBody, Rule};
use tower::{Layer, ServiceExt};

use super::probe::Probe;
use super::reply::Reply;
use super::upstream::Upstream;

/// What the store's clock shows when a test begins.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// One second, the unit of most tests.
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// One hour.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// One store and an engine on it. The clock follows tokio's timers.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) probe: Probe,
    pub(crate) engine: Engine,
}

/// The layer around a service.
pub(crate) type App = Protected<Upstream>;

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        let memory = MemoryStore::new(TimerClock::starting_at(START));
        Self::on(Probe::new(Arc::new(memory)), 1, limits)
    }

    /// Another process on the same store.
    pub(crate) fn second(&self) -> Self {
        Self::on(self.probe.second(), 2, Limits::default())
    }

    fn on(probe: Probe, seed: u64, limits: Limits) -> Self {
        let engine = Engine::builder(probe.clone())
            .owner(&format!("engine-{seed}"))
            .entropy(Entropy::seeded(seed))
            .background(tokio::runtime::Handle::current())
            .limits(limits)
            .build();
        Self { probe, engine }
    }

    /// Starts a layer.
    pub(crate) fn layer(&self) -> IdempotencyBuilder {
        Idempotency::builder(self.engine.clone())
    }

    /// A service under the default rule.
    pub(crate) fn app(&self, upstream: &Upstream) -> App {
        self.app_with(upstream, Rule::default())
    }

    /// A service under this rule.
    pub(crate) fn app_with(&self, upstream: &Upstream, rule: Rule) -> App {
        self.layer().default_rule(rule).build().layer(upstream.clone())
    }

    /// A service with one route under this rule.
    pub(crate) fn app_at(&self, upstream: &Upstream, pattern: &str, rule: Rule) -> App {
        let pattern = Pattern::parse(pattern).expect("a valid pattern");
        self.layer().route("the-route", pattern, rule).build().layer(upstream.clone())
    }

    /// The same as an axum application, for real sockets.
    pub(crate) fn router(&self, upstream: &Upstream, rule: Rule) -> Router {
        let layer = self.layer().default_rule(rule).build();
        Router::new().fallback_service(upstream.clone()).layer(layer)
    }

    /// The states of all records, in the order of their names.
    pub(crate) async fn states(&self) -> Vec<StateName> {
        let page = self.probe.list(&ListQuery::default()).await.expect("a readable store");
        page.records.iter().map(|record| record.state).collect()
    }

    /// The state of the only record.
    pub(crate) async fn state(&self) -> StateName {
        let states = self.states().await;
        assert!(states.len() < 2, "more than one record: {states:?}");
        states.first().copied().unwrap_or(StateName::Absent)
    }

    /// The only record, as it is stored.
    pub(crate) async fn record(&self) -> justonce_core::Record {
        let page = self.probe.list(&ListQuery::default()).await.expect("a readable store");
        assert_eq!(page.records.len(), 1, "one record");
        let id = page.records.first().expect("one record").id;
        let stored = self.probe.get(&id).await.expect("a readable store").expect("a record");
        stored.entry.record().cloned().expect("a record, no tombstone")
    }
}

/// The default policy of routes but for what becomes of a lapsed lease.
pub(crate) fn policy(on_lapsed: OnLapsed) -> PolicyBuilder {
    Policy::builder().on_lapsed(on_lapsed)
}

/// The default rule but for what becomes of a lapsed lease.
pub(crate) fn rule(on_lapsed: OnLapsed) -> Rule {
    Rule::default().with_policy(policy(on_lapsed).build().expect("a valid policy"))
}

/// A request as most tests send it.
pub(crate) fn payment(key: &str) -> Request<Body> {
    request("POST", "/payments", &[("idempotency-key", key)], r#"{"amount":5}"#)
}

/// Any request.
pub(crate) fn request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> Request<Body> {
    let mut builder = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(body.into()).expect("a valid request")
}

/// Sends a request; the answer may still be streaming.
pub(crate) async fn call(app: &App, request: Request<Body>) -> Response<ResponseBody<Body>> {
    app.clone().oneshot(request).await.expect("the service does not fail")
}

/// Sends a request and reads its answer.
pub(crate) async fn send(app: &App, request: Request<Body>) -> Reply {
    Reply::of(call(app, request).await).await
}

/// Sends a request from a task of its own.
pub(crate) fn spawn(app: &App, request: Request<Body>) -> tokio::task::JoinHandle<Reply> {
    let app = app.clone();
    tokio::spawn(async move { send(&app, request).await })
}

/// Lets virtual time pass; everything that is due meanwhile happens.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await; // tidy: allow-sleep: time is paused, so it is virtual
}
