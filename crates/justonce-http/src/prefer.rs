//! How long a duplicate waits: the route's setting, or the caller's wish.

use std::time::Duration;

use http::HeaderMap;
use justonce_core::OnConcurrent;

use crate::rule::{Rule, WhenBusy};

const PREFER: http::HeaderName = http::HeaderName::from_static("prefer");

/// What a duplicate does while the operation runs. Whoever waits executes the operation itself if
/// its owner gave it up without an outcome.
pub(crate) fn on_concurrent(rule: &Rule, headers: &HeaderMap) -> OnConcurrent {
    let wait = match (asked(headers), rule.when_busy) {
        (Some(asked), _) => asked.min(rule.max_wait),
        (None, WhenBusy::Wait(time)) => time,
        (None, WhenBusy::Reject) => Duration::ZERO,
    };
    if wait.is_zero() { OnConcurrent::Reject } else { OnConcurrent::Cooperate(wait) }
}

/// The time of `Prefer: wait=10` (RFC 7240), if it can be read.
fn asked(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all(PREFER).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).find_map(|preference| {
        let preference = preference.split(';').next()?;
        let (name, value) = preference.split_once('=')?;
        if !name.trim().eq_ignore_ascii_case("wait") {
            return None;
        }
        value.trim().trim_matches('"').parse().ok().map(Duration::from_secs)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read_as_rfc_7240_writes_them() {
        let wish = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(PREFER, value.parse().unwrap());
            asked(&headers).map(|time| time.as_secs())
        };
        assert_eq!(wish("wait=10"), Some(10));
        assert_eq!(wish("respond-async, wait=5"), Some(5));
        assert_eq!(wish("WAIT = \"7\"; foo=1"), Some(7));
        assert_eq!(wish("wait=soon"), None);
        assert_eq!(wish("wait"), None);
    }
}
