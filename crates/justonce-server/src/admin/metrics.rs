//! `GET /metrics`, for Prometheus.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use justonce::store::{BoundUse, Health, ListQuery, MAX_PAGE};
use justonce::{Clock, Engine, StateName, StoreResult, SystemClock, Timestamp};

use super::server::AdminState;
use super::{connections, process, upstreams};
use crate::metrics::STORE_WARNINGS;
use crate::metrics::scraped::{
    BUILD_INFO, EXECUTING, Metric, STORE_BOUND_LIMIT, STORE_BOUND_USED, STORE_BYTES, STORE_DAMAGED,
    STORE_RECORDS, STORE_UP, STORE_WARNING, UNKNOWN_OLDEST, UNKNOWN_WAITING,
};

/// How many pages of unknown operations are read for the age of the oldest.
const MAX_PAGES: usize = 8;

/// The counters, and what is read for each scrape.
pub(crate) async fn metrics(State(admin): State<Arc<AdminState>>) -> Response {
    let mut text = Text(admin.metrics.render());
    text.metric(&BUILD_INFO, [(Some(("version", env!("CARGO_PKG_VERSION"))), 1.0)]);
    text.one(&EXECUTING, admin.engine.load().executing as f64);
    process::write(&mut text, admin.started);
    upstreams::write(&mut text, &admin.upstreams.now());
    connections::write(&mut text, &admin.listener.stats());
    store(&mut text, &admin.engine).await;
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text.0).into_response()
}

/// The store's gauges. Those that it cannot give are left out: their last values would be wrong.
async fn store(text: &mut Text, engine: &Engine) {
    let looked = async {
        engine.store().ready().await?;
        let stats = engine.store().stats().await?;
        let health = engine.store().health().await?;
        StoreResult::Ok((stats, health, waiting(engine).await?))
    };
    let (stats, found, (count, oldest)) = match looked.await {
        Ok(looked) => looked,
        Err(error) => {
            tracing::warn!(
                target: "justonce::store", %error,
                "the store did not answer: its sizes and the number of unknown operations are not \
                 known"
            );
            return text.one(&STORE_UP, 0.0);
        }
    };
    text.one(&STORE_UP, 1.0);
    health(text, &found);
    let by_state = || stats.by_state().map(|(state, size)| (Some(("state", state.as_str())), size));
    text.metric(&STORE_RECORDS, by_state().map(|(state, size)| (state, size.count as f64)));
    text.metric(&STORE_BYTES, by_state().map(|(state, size)| (state, size.bytes as f64)));
    // For display only: the age is by this machine's clock.
    let age = oldest.map(|since| SystemClock::new().now().since(since)).unwrap_or_default();
    // Where there are more than were read, the store's own count is larger.
    let counted = stats.by_state().find(|(state, _)| *state == StateName::Unknown);
    let counted = counted.map_or(0, |(_, size)| size.count);
    text.one(&UNKNOWN_WAITING, counted.max(count as u64) as f64);
    text.one(&UNKNOWN_OLDEST, age.as_secs_f64());
}

/// The store's warnings. The log has them in words.
fn health(text: &mut Text, health: &Health) {
    text.one(&STORE_DAMAGED, health.damaged.count as f64);
    let is_there = |name| health.warnings.iter().any(|warning| warning.name == name);
    let warnings =
        STORE_WARNINGS.map(|name| (Some(("name", name)), if is_there(name) { 1.0 } else { 0.0 }));
    text.metric(&STORE_WARNING, warnings);
    if !health.bounds.is_empty() {
        let used = |bound: &BoundUse| (Some(("bound", bound.name)), bound.used as f64);
        let limit = |bound: &BoundUse| (Some(("bound", bound.name)), bound.limit as f64);
        text.metric(&STORE_BOUND_USED, health.bounds.iter().map(used));
        text.metric(&STORE_BOUND_LIMIT, health.bounds.iter().map(limit));
    }
}

/// How many operations are unknown, and since when the oldest is.
async fn waiting(engine: &Engine) -> StoreResult<(usize, Option<Timestamp>)> {
    let state = Some(StateName::Unknown);
    let mut query = ListQuery { state, limit: MAX_PAGE, ..ListQuery::default() };
    let (mut count, mut oldest) = (0, None);
    for _ in 0..MAX_PAGES {
        let page = engine.store().list(&query).await?;
        count += page.records.len();
        let first = page.records.iter().map(|record| record.changed_at).min();
        oldest = [oldest, first].into_iter().flatten().min();
        query.after = page.next;
        if page.next.is_none() {
            break;
        }
    }
    Ok((count, oldest))
}

/// A scrape that is being written.
pub(super) struct Text(String);

impl Text {
    /// A metric with one value.
    pub(super) fn one(&mut self, metric: &Metric, value: f64) {
        self.metric(metric, [(None, value)]);
    }

    /// A metric with its values, each with a label or without.
    pub(super) fn metric<'a>(
        &mut self,
        metric: &Metric,
        values: impl IntoIterator<Item = (Option<(&'a str, &'a str)>, f64)>,
    ) {
        let labels = |(label, of): (&str, &str)| format!("{label}=\"{of}\"");
        let values = values.into_iter();
        self.labelled(
            metric,
            values.map(|(label, value)| (label.map(labels).unwrap_or_default(), value)),
        );
    }

    /// A metric with its values, each with its labels as they are written. No label here needs
    /// escaping.
    pub(super) fn labelled(
        &mut self,
        metric: &Metric,
        values: impl IntoIterator<Item = (String, f64)>,
    ) {
        let Metric { name, kind, help, .. } = metric;
        // Writing into memory cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = match labels.as_str() {
                "" => writeln!(self.0, "{name} {value}"),
                labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
            };
        }
        self.0.push('\n');
    }
}
