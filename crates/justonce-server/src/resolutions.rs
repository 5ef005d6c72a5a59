//! Counts and logs resolutions, by probes, callbacks and operators alike.

use justonce::{HowResolved, RecordId, Resolver};
use metrics::counter;

use crate::metrics::RESOLUTIONS;

/// Counts and logs one that was taken.
pub(crate) fn taken(id: RecordId, by: &Resolver, how: HowResolved) {
    counter!(RESOLUTIONS.name, "by" => by.kind(), "result" => how.as_str()).increment(1);
    tracing::info!(
        target: "justonce::resolution",
        %id, by = by.kind(), name = by.name(), result = how.as_str(), "resolved"
    );
}

/// Counts one that came too late, or was about something that is not unknown.
pub(crate) fn lost(by: &Resolver) {
    counter!(RESOLUTIONS.name, "by" => by.kind(), "result" => "refused").increment(1);
}
