//! Which routes store their requests, so that they can be sent again without the caller.

use http::HeaderName;
use justonce::{MAX_CHECKPOINT_BYTES, OnLapsed};

use super::layer::Layer;
use crate::config::report::Report;
use crate::config::words;

/// The room that is left for the head of a request, in bytes.
const HEAD_BYTES: usize = 64 * 1024;
/// The longest body of a request that is stored with its claim, in bytes.
const MAX_STORED_BODY: usize = MAX_CHECKPOINT_BYTES - HEAD_BYTES;

/// Whether a route stores its requests.
pub(super) fn is_on(layer: &Layer) -> bool {
    layer.complete.as_ref().is_some_and(|set| set.value)
}

/// The headers that are not stored; nothing if requests are not. What is wrong is reported.
pub(super) fn resolve(layer: &Layer, report: &mut Report) -> Option<Vec<HeaderName>> {
    let set = layer.complete.as_ref().filter(|set| set.value)?;
    let on_lapsed = layer.on_lapsed.as_ref();
    if on_lapsed.is_none_or(|set| set.value == OnLapsed::Hold) {
        let message = "`complete` sends a request again after a crash, and under `on_lapsed = \
                       \"hold\"` nothing is executed again";
        let help = "set `on_lapsed = \"rerun\"` if the upstream recognises a repetition by the \
                    key, or leave `complete` out";
        report.at(&set.origin, message.to_owned(), Some(help.to_owned()));
    }
    Some(layer.complete_without.as_ref().map(|set| set.value.clone()).unwrap_or_default())
}

/// What one table cannot say together. What it has from `[defaults]` gives way instead.
pub(super) fn check(layer: &Layer, report: &mut Report) {
    let Some(set) = layer.complete.as_ref().filter(|set| set.value) else { return };
    if let Some(body) = layer.request_body.as_ref().filter(|set| set.value > MAX_STORED_BODY) {
        let message = format!(
            "`request_body` is over {}, and with `complete` ({}) requests are stored",
            words::size(MAX_STORED_BODY),
            report.name_of(&set.origin)
        );
        report.at(&body.origin, message, None);
    }
}

/// The longest body of a route's requests, where it is `usual` elsewhere.
pub(super) fn longest_body(layer: &Layer, usual: usize) -> usize {
    if is_on(layer) { usual.min(MAX_STORED_BODY) } else { usual }
}
