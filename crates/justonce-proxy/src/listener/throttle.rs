//! Log lines that anybody can cause, at most one a second.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The shortest pause between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Says which occurrences are logged.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    logged: Option<Instant>,
    left_out: u64,
}

impl Throttle {
    /// Whether this occurrence is logged: then with how many were not since the last one that was.
    pub(super) fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.logged.is_some_and(|logged| now.duration_since(logged) < INTERVAL) {
            state.left_out += 1;
            return None;
        }
        state.logged = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_logged_is_counted() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        let at = |millis| throttle.admit(start + Duration::from_millis(millis));
        assert_eq!(at(0), Some(0));
        assert_eq!(at(0), None);
        assert_eq!(at(999), None);
        assert_eq!(at(1000), Some(2));
        assert_eq!(at(2500), Some(0));
    }
}
