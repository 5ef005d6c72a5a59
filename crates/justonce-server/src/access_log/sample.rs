//! Which GET and HEAD requests are logged.

use std::sync::atomic::{AtomicU64, Ordering};

use http::Method;

/// Picks a part of the requests that only read, evenly.
#[derive(Debug)]
pub(super) struct Sample {
    part: f64,
    seen: AtomicU64,
}

impl Sample {
    pub(super) const fn new(part: f64) -> Self {
        Self { part, seen: AtomicU64::new(0) }
    }

    /// Whether a request is logged.
    pub(super) fn has(&self, method: &Method) -> bool {
        if self.part >= 1.0 || !matches!(*method, Method::GET | Method::HEAD) {
            return true;
        }
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        self.until(seen) < self.until(seen.wrapping_add(1))
    }

    /// How many of so many requests are logged.
    #[expect(
        clippy::cast_precision_loss,
        reason = "after 2^53 requests a few more or fewer are logged"
    )]
    fn until(&self, seen: u64) -> f64 {
        (seen as f64 * self.part).floor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(part: f64, method: &Method, requests: usize) -> usize {
        let sample = Sample::new(part);
        (0..requests).filter(|_| sample.has(method)).count()
    }

    #[test]
    fn a_part_of_the_reads_and_everything_else_is_logged() {
        assert_eq!(logged(0.01, &Method::GET, 10_000), 100);
        assert_eq!(logged(0.5, &Method::HEAD, 11), 5);
        assert_eq!(logged(1.0, &Method::GET, 17), 17);
        assert_eq!(logged(0.01, &Method::POST, 17), 17);
        assert_eq!(logged(0.01, &Method::OPTIONS, 17), 17);
    }
}
