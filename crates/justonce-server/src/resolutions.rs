//! Counts and logs resolutions, by probes, callbacks and operators alike.

use justonce::{HowResolved, RecordId, Resolver};
use metrics::counter;

use crate::metrics::RESOLUTIONS;

/// One that was taken.
pub(crate) fn count(by: &Resolver, how: HowResolved) {
    counter!(RESOLUTIONS.name, "by" => by.kind(), "result" => how.as_str()).increment(1);
}

/// One that came too late, or was about something that is not unknown.
pub(crate) fn count_lost(by: &Resolver) {
    counter!(RESOLUTIONS.name, "by" => by.kind(), "result" => "refused").increment(1);
}

/// A line of the log for one that was taken.
pub(crate) fn log(id: RecordId, by: &Resolver, how: HowResolved) {
    tracing::info!(
        target: "justonce::resolution",
        %id, by = by.kind(), name = by.name(), result = how.as_str(), "resolved"
    );
}
