//! `complete`: requests that are stored, so that they can be sent again without the caller.

use http::HeaderName;
use justonce_core::{MAX_CHECKPOINT_BYTES, OnLapsed};

use super::route::RouteTable;
use crate::declare::settings;
use crate::kind::{flag, header, list};
use crate::report::Report;
use crate::words;

/// What is left for the head of a request, in bytes.
const HEAD_BYTES: usize = 64 * 1024;
/// The longest body of a request that is stored with its claim, in bytes.
const MAX_STORED_BODY: usize = MAX_CHECKPOINT_BYTES - HEAD_BYTES;

settings! {
    /// What one source says about stored requests.
    layer CompleteLayer {
        /// Whether requests are stored with the claim, so that an operation whose gateway died is
        /// completed without its client; only with `on_lapsed = "rerun"`
        /// ([more](http.md#requests-whose-gateway-died)).
        complete: bool = flag(), default "false", example "true";
        /// Headers of requests that are not stored, and not sent again then.
        complete_without: Vec<HeaderName> = list(header), default "", example "cookie";
    }
}

impl CompleteLayer {
    /// Whether requests are stored.
    pub(super) fn is_on(&self) -> bool {
        self.complete.as_ref().is_some_and(|set| set.value)
    }
}

/// The headers that are not stored; nothing if requests are not. What is wrong is reported.
pub(super) fn resolve(table: &RouteTable, report: &mut Report) -> Option<Vec<HeaderName>> {
    let set = table.complete.complete.as_ref().filter(|set| set.value)?;
    if table.policy.on_lapsed.as_ref().is_some_and(|set| set.value == OnLapsed::Hold) {
        let message = "`complete` sends a request again after a crash, and under `on_lapsed = \
                       \"hold\"` nothing is executed again";
        let help = "set `on_lapsed = \"rerun\"` if the upstream recognises a repetition by the \
                    key, or leave `complete` out";
        report.at(&set.origin, message.to_owned(), Some(help.to_owned()));
    }
    table.complete.complete_without.as_ref().map(|set| set.value.clone())
}

/// What one table cannot say together. What it has from `[defaults]` gives way instead.
pub(super) fn check(table: &RouteTable, report: &mut Report) {
    let Some(set) = table.complete.complete.as_ref().filter(|set| set.value) else { return };
    let body = table.route.request_body.as_ref();
    if let Some(body) = body.filter(|set| set.value > MAX_STORED_BODY) {
        let message = format!(
            "`request_body` is over {}, and with `complete` ({}) requests are stored",
            words::size(MAX_STORED_BODY),
            report.name_of(&set.origin)
        );
        report.at(&body.origin, message, None);
    }
}

/// The longest body of a route's requests.
pub(super) fn longest_body(layer: &CompleteLayer, bytes: usize) -> usize {
    if layer.is_on() { bytes.min(MAX_STORED_BODY) } else { bytes }
}
