//! Metrics for Prometheus.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use justonce::store::{Health, ListQuery, MAX_PAGE};
use justonce::{Clock, Engine, StateName, StoreResult, SystemClock, Timestamp};

use super::process;
use super::server::Watched;
use crate::metrics::STORE_WARNINGS;
use crate::metrics::scraped::{
    BUILD_INFO, EXECUTING, Metric, STORE_BYTES, STORE_DAMAGED, STORE_RECORDS, STORE_UP,
    STORE_WARNING, UNKNOWN_OLDEST, UNKNOWN_WAITING,
};

/// How many pages of unknown operations are looked at: with more of them waiting, the number alone
/// says what must be said.
const MAX_LOOKS: usize = 8;

/// Everything that is counted, and what is looked up when somebody asks.
pub(crate) async fn metrics(State(watched): State<Arc<Watched>>) -> Response {
    let mut text = Text(watched.metrics.render());
    text.metric(&BUILD_INFO, [(Some(("version", env!("CARGO_PKG_VERSION"))), 1.0)]);
    text.one(&EXECUTING, watched.engine.load().executing as f64);
    process::write(&mut text, watched.started);
    store(&mut text, &watched.engine).await;
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text.0).into_response()
}

/// What the store says about itself. What it does not say is not known, and left out: a gauge with
/// its last value would be a lie.
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
    // Only a display: the age is by this machine's clock, and nothing is decided by it.
    let age = oldest.map(|since| SystemClock::new().now().since(since)).unwrap_or_default();
    // Where there are more than were looked at, the store has counted them.
    let counted = stats.by_state().find(|(state, _)| *state == StateName::Unknown);
    let counted = counted.map_or(0, |(_, size)| size.count);
    text.one(&UNKNOWN_WAITING, counted.max(count as u64) as f64);
    text.one(&UNKNOWN_OLDEST, age.as_secs_f64());
}

/// What operators should look at in the store although it works. The log says it in words.
fn health(text: &mut Text, health: &Health) {
    text.one(&STORE_DAMAGED, health.damaged.count as f64);
    let is_there = |name| health.warnings.iter().any(|warning| warning.name == name);
    let warnings =
        STORE_WARNINGS.map(|name| (Some(("name", name)), if is_there(name) { 1.0 } else { 0.0 }));
    text.metric(&STORE_WARNING, warnings);
}

/// How many operations are unknown, and since when the oldest is.
async fn waiting(engine: &Engine) -> StoreResult<(usize, Option<Timestamp>)> {
    let state = Some(StateName::Unknown);
    let mut query = ListQuery { state, limit: MAX_PAGE, ..ListQuery::default() };
    let (mut count, mut oldest) = (0, None);
    for _ in 0..MAX_LOOKS {
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

    /// A metric with its values, each with a label or without. No label here needs escaping.
    fn metric<'a>(
        &mut self,
        metric: &Metric,
        values: impl IntoIterator<Item = (Option<(&'a str, &'a str)>, f64)>,
    ) {
        let Metric { name, kind, help } = metric;
        // Writing into memory cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (label, value) in values {
            let _ = match label {
                Some((label, of)) => writeln!(self.0, "{name}{{{label}=\"{of}\"}} {value}"),
                None => writeln!(self.0, "{name} {value}"),
            };
        }
        self.0.push('\n');
    }
}
