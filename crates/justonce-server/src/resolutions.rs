//! Resolutions, counted and told: who resolved what, whatever the door.

use justonce::{HowResolved, RecordId, Resolver};
use metrics::counter;

use crate::metrics::RESOLUTIONS;

/// One that was taken.
pub(crate) fn count(by: &Resolver, how: HowResolved) {
    counter!(RESOLUTIONS, "by" => by.kind(), "result" => how.as_str()).increment(1);
}

/// One that came too late, or was about something that is not unknown.
pub(crate) fn count_lost(by: &Resolver) {
    counter!(RESOLUTIONS, "by" => by.kind(), "result" => "refused").increment(1);
}

/// A line of the log for one that was taken.
pub(crate) fn tell(id: RecordId, by: &Resolver, how: HowResolved) {
    tracing::info!(
        target: "justonce::resolution",
        %id, by = by.kind(), name = by.name(), result = how.as_str(), "resolved"
    );
}

/// Makes the series exist before the first resolution, so that rates begin at zero.
pub(crate) fn describe() {
    for by in ["probe", "callback", "operator"] {
        for result in ["completed", "failed", "released", "refused"] {
            counter!(RESOLUTIONS, "by" => by, "result" => result).increment(0);
        }
    }
}
