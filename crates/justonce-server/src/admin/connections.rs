//! The metrics of clients' connections, read for each scrape.

use justonce_proxy::ListenerStats;

use super::metrics::Text;
use crate::metrics::scraped::{
    CONNECTIONS, CONNECTIONS_ACCEPTED, CONNECTIONS_LIMIT, CONNECTIONS_REFUSED, CONNECTIONS_SPOKEN,
};

/// Writes them.
pub(super) fn write(text: &mut Text, stats: &ListenerStats) {
    let ListenerStats { open, open_http1, open_http2, .. } = *stats;
    let by = |label, values: &[(&'static str, u64)]| {
        let value = |(name, count): &(&'static str, u64)| (Some((label, *name)), *count as f64);
        values.iter().map(value).collect::<Vec<_>>()
    };
    // The counts are read one after the other, and may be of slightly different moments.
    let other = open.saturating_sub(open_http1 + open_http2);
    let open =
        [("http1", open_http1 as u64), ("http2", open_http2 as u64), ("other", other as u64)];
    text.metric(&CONNECTIONS, by("protocol", &open));
    text.one(&CONNECTIONS_LIMIT, stats.limit as f64);
    text.one(&CONNECTIONS_ACCEPTED, stats.accepted as f64);
    let spoken = [("http1", stats.http1), ("http2", stats.http2)];
    text.metric(&CONNECTIONS_SPOKEN, by("protocol", &spoken));
    let refused = [("limit", stats.over_limit), ("proxy", stats.bad_source)];
    text.metric(&CONNECTIONS_REFUSED, by("reason", &refused));
}
