//! The metrics of upstreams, read for each scrape.

use justonce_proxy::{BreakerState, UpstreamStatus};

use super::metrics::Text;
use crate::metrics::scraped::{
    Metric, UPSTREAM_BREAKER_OPEN, UPSTREAM_CONNECTIONS, UPSTREAM_HEALTHY, UPSTREAM_IN_FLIGHT,
};
use crate::upstreams::UpstreamSet;

/// Writes them, for every address.
pub(super) fn write(text: &mut Text, upstreams: &UpstreamSet) {
    let all = upstreams.status();
    let mut gauge = |metric: &Metric, value: fn(&UpstreamStatus) -> f64| {
        let values = all.iter().map(|(name, status)| (labels(name, status), value(status)));
        text.labelled(metric, values);
    };
    gauge(&UPSTREAM_HEALTHY, |status| f64::from(u8::from(status.is_healthy)));
    gauge(&UPSTREAM_BREAKER_OPEN, |status| {
        f64::from(u8::from(status.breaker != BreakerState::Closed))
    });
    gauge(&UPSTREAM_IN_FLIGHT, |status| status.in_flight as f64);
    let connections = all.iter().flat_map(|(name, status)| {
        let busy = status.connections.saturating_sub(status.idle);
        [("busy", busy), ("idle", status.idle)].map(|(state, count)| {
            (format!("{},state=\"{state}\"", labels(name, status)), count as f64)
        })
    });
    text.labelled(&UPSTREAM_CONNECTIONS, connections);
}

/// The labels of an address. Neither it nor a name has anything to escape.
fn labels(name: &str, status: &UpstreamStatus) -> String {
    format!("upstream=\"{name}\",address=\"{}\"", status.upstream)
}
