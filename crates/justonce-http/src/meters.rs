//! Metrics, with handles made once per route: looking them up costs ten times a count.

use std::collections::HashMap;
use std::fmt;
use std::sync::{PoisonError, RwLock};

use justonce_core::store::{Observed, Seen};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::fate::Fate;

/// The handles of one route. They belong to the recorder that was installed when the layer was
/// built.
pub(crate) struct Meters {
    /// One for each fate, in the order of [`Fate::ALL`].
    requests: Box<[Counter]>,
    pub(crate) replays: Counter,
    pub(crate) mismatches: Counter,
    pub(crate) unknown: Counter,
    pub(crate) takeovers: Counter,
    pub(crate) concurrent: Counter,
    pub(crate) near_misses: Counter,
    pub(crate) waiters: Gauge,
    pub(crate) lock_wait: Histogram,
    pub(crate) processing: Histogram,
}

impl Meters {
    pub(crate) fn of(route: &str) -> Self {
        let route = route.to_owned();
        let requests = Fate::ALL.iter().map(|fate| {
            let duplicate = if fate.is_duplicate() { "true" } else { "false" };
            counter!(
                "idempotency_requests_total",
                "route" => route.clone(), "status" => fate.label(), "duplicate" => duplicate,
            )
        });
        Self {
            requests: requests.collect(),
            replays: counter!("idempotency_replays_total", "route" => route.clone()),
            mismatches: counter!("idempotency_mismatches_total", "route" => route.clone()),
            unknown: counter!("idempotency_unknown_outcomes_total", "route" => route.clone()),
            takeovers: counter!("idempotency_takeovers_total", "route" => route.clone()),
            concurrent: counter!("idempotency_concurrent_attempts", "route" => route.clone()),
            near_misses: counter!("idempotency_near_misses_total", "route" => route.clone()),
            waiters: gauge!("idempotency_waiters", "route" => route.clone()),
            lock_wait: histogram!("idempotency_lock_wait_seconds", "route" => route.clone()),
            processing: histogram!(
                "idempotency_processing_duration_seconds", "handler" => route,
            ),
        }
    }

    pub(crate) fn count(&self, fate: Fate) {
        if let Some(counter) = self.requests.get(fate as usize) {
            counter.increment(1);
        }
        match fate {
            Fate::Replayed => self.replays.increment(1),
            Fate::Mismatch => self.mismatches.increment(1),
            Fate::Abandoned => self.unknown.increment(1),
            Fate::InFlight => self.concurrent.increment(1),
            _ => {}
        }
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

/// A store whose calls are counted as `idempotency_store_operations_total`, and timed as
/// `idempotency_store_operation_seconds`.
///
/// ```
/// use justonce_core::{Engine, ManualClock, memory::MemoryStore};
///
/// let store = MemoryStore::new(ManualClock::default());
/// let engine = Engine::new(justonce_http::metered(store));
/// ```
pub fn metered<S>(store: S) -> Observed<S> {
    let calls = Calls::default();
    Observed::new(store, move |seen: Seen<'_>| {
        calls.count(seen.call, seen.result.unwrap_or("error"), seen.elapsed.as_secs_f64());
    })
}

/// The handles of all kinds of calls that were seen so far. There are a few dozen.
#[derive(Default)]
struct Calls(RwLock<HashMap<(&'static str, &'static str), Call>>);

struct Call {
    count: Counter,
    seconds: Histogram,
}

impl Calls {
    fn count(&self, call: &'static str, status: &'static str, seconds: f64) {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(handles) = known.get(&(call, status)) {
            return handles.record(seconds);
        }
        drop(known);
        let handles = Call {
            count: counter!(
                "idempotency_store_operations_total", "operation" => call, "status" => status,
            ),
            seconds: histogram!("idempotency_store_operation_seconds", "operation" => call),
        };
        handles.record(seconds);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert((call, status), handles);
    }
}

impl Call {
    fn record(&self, seconds: f64) {
        self.count.increment(1);
        self.seconds.record(seconds);
    }
}
