//! How a request was answered, and the handles of this crate's metrics.
//!
//! Handles are made once per route, because looking one up costs ten times a count. All of them are
//! made when the layer or the store is built, so that every series is there before its first event.

use std::collections::HashMap;
use std::fmt;
use std::sync::{PoisonError, RwLock};

use justonce_core::store::{BecameUnknown, Observed, Observer, Seen};
use justonce_core::{Existing, Ran, RunError, UnknownReason};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::caller_limits::Limit;
use crate::claims::TokenRefusal;
use crate::metrics::{
    CONCURRENT, CREDENTIALS_REFUSED, LIMITED, LOCK_WAIT, MISMATCHES, NEAR_MISSES, PROCESSING,
    REPLAYS, REQUESTS, STORE_OPERATIONS, STORE_SECONDS, TAKEOVERS, UNKNOWN, WAITERS,
};
use crate::problem::ProblemCode;

macro_rules! dispositions {
    ($($(#[$doc:meta])* $name:ident $label:literal $duplicate:literal;)*) => {
        /// How a request was answered.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Disposition {
            $($(#[$doc])* $name,)*
        }

        impl Disposition {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub(crate) const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// Whether the operation had begun before.
            pub(crate) const fn is_duplicate(self) -> bool {
                match self { $(Self::$name => $duplicate,)* }
            }
        }
    };
}

dispositions! {
    /// Executed, and its outcome is stored.
    Executed "executed" false;
    /// Executed, and the key was released.
    Released "released" false;
    /// It is unknown whether it was executed.
    Abandoned "abandoned" false;
    /// Executed, but its outcome could not be stored yet.
    NotStored "not_stored" false;
    /// Executed, but another attempt took over.
    Superseded "superseded" false;
    /// Answered with the stored outcome.
    Replayed "replayed" true;
    /// Refused: the operation is running.
    InFlight "in_flight" true;
    /// Refused: the operation is unknown.
    Unknown "unknown" true;
    /// Refused: the key was used for a different request.
    Mismatch "mismatch" true;
    /// Refused: the cookies are not those of the first request.
    CallerDiffers "caller_differs" true;
    /// Refused: the retention is over.
    Expired "expired" true;
    /// Refused for its key, its body or its credentials.
    Refused "refused" false;
    /// Refused: the store is not available.
    StoreUnavailable "store_unavailable" false;
    /// Refused: the circuit breaker is open.
    BreakerOpen "breaker_open" false;
    /// Refused: too many operations or bodies.
    Overloaded "overloaded" false;
    /// Refused: the caller has reached a limit.
    Limited "limited" false;
    /// Passed without protection.
    Unprotected "unprotected" false;
}

impl Disposition {
    pub(crate) fn of(ran: &Result<Ran, RunError>) -> Self {
        match ran {
            Ok(Ran::Executed(_) | Ran::Failed(_)) => Self::Executed,
            Ok(Ran::Released) => Self::Released,
            Ok(Ran::Abandoned(_) | Ran::Unclassified(_)) => Self::Abandoned,
            Ok(Ran::Superseded(_) | Ran::FailedBefore(_)) => Self::Superseded,
            Ok(Ran::Replayed(_)) => Self::Replayed,
            Ok(Ran::Busy(_)) => Self::InFlight,
            Ok(Ran::Unknown(_)) => Self::Unknown,
            Ok(Ran::Mismatch) => Self::Mismatch,
            Ok(Ran::Expired(_)) => Self::Expired,
            Err(RunError::NotStored { .. }) => Self::NotStored,
            Err(RunError::Overloaded { .. }) => Self::Overloaded,
            Err(_) => Self::StoreUnavailable,
        }
    }

    pub(crate) const fn of_existing(existing: &Existing) -> Self {
        match existing {
            Existing::Completed(_) | Existing::Failed(_) => Self::Replayed,
            Existing::Busy(_) => Self::InFlight,
            Existing::Unknown(_) => Self::Unknown,
            Existing::Mismatch => Self::Mismatch,
            Existing::Expired(_) => Self::Expired,
        }
    }

    pub(crate) const fn of_problem(code: ProblemCode) -> Self {
        match code {
            ProblemCode::StoreUnavailable => Self::StoreUnavailable,
            ProblemCode::Overloaded => Self::Overloaded,
            ProblemCode::LimitReached => Self::Limited,
            ProblemCode::UpstreamUnreachable => Self::BreakerOpen,
            ProblemCode::KeyMismatch => Self::Mismatch,
            ProblemCode::CallerDiffers => Self::CallerDiffers,
            _ => Self::Refused,
        }
    }
}

/// The handles of one route. They belong to the recorder that was installed when the layer was
/// built.
pub(crate) struct Meters {
    /// One for each disposition, in the order of [`Disposition::ALL`].
    requests: Box<[Counter]>,
    pub(crate) replays: Counter,
    pub(crate) mismatches: Counter,
    pub(crate) takeovers: Counter,
    pub(crate) concurrent: Counter,
    pub(crate) near_misses: Counter,
    /// One for each limit, in the order of [`Limit::ALL`].
    limited: [Counter; 3],
    /// One for each reason, in the order of [`TokenRefusal::LABELS`]; none where no claim counts.
    refused_credentials: Box<[Counter]>,
    pub(crate) waiters: Gauge,
    pub(crate) lock_wait: Histogram,
    pub(crate) processing: Histogram,
}

impl Meters {
    pub(crate) fn of(route: &str, has_claims: bool) -> Self {
        describe_unknown(route);
        let route = route.to_owned();
        let requests = Disposition::ALL.iter().map(|disposition| {
            let duplicate = if disposition.is_duplicate() { "true" } else { "false" };
            counter!(
                REQUESTS.name,
                "route" => route.clone(), "status" => disposition.label(), "duplicate" => duplicate,
            )
        });
        let reasons = TokenRefusal::LABELS.iter().filter(|_| has_claims).map(|reason| {
            counter!(CREDENTIALS_REFUSED.name, "route" => route.clone(), "reason" => *reason)
        });
        Self {
            requests: requests.collect(),
            refused_credentials: reasons.collect(),
            replays: counter!(REPLAYS.name, "route" => route.clone()),
            mismatches: counter!(MISMATCHES.name, "route" => route.clone()),
            takeovers: counter!(TAKEOVERS.name, "route" => route.clone()),
            concurrent: counter!(CONCURRENT.name, "route" => route.clone()),
            near_misses: counter!(NEAR_MISSES.name, "route" => route.clone()),
            limited: Limit::ALL.map(
                |limit| counter!(LIMITED.name, "route" => route.clone(), "limit" => limit.as_str()),
            ),
            waiters: gauge!(WAITERS.name, "route" => route.clone()),
            lock_wait: histogram!(LOCK_WAIT.name, "route" => route.clone()),
            processing: histogram!(PROCESSING.name, "route" => route),
        }
    }

    pub(crate) fn count_limited(&self, limit: Limit) {
        if let Some(counter) = self.limited.get(limit as usize) {
            counter.increment(1);
        }
    }

    pub(crate) fn count_refused_credentials(&self, refusal: TokenRefusal) {
        let label = refusal.as_str();
        let at = TokenRefusal::LABELS.iter().position(|known| *known == label);
        if let Some(counter) = at.and_then(|at| self.refused_credentials.get(at)) {
            counter.increment(1);
        }
    }

    pub(crate) fn count(&self, disposition: Disposition) {
        if let Some(counter) = self.requests.get(disposition as usize) {
            counter.increment(1);
        }
        match disposition {
            Disposition::Replayed => self.replays.increment(1),
            Disposition::Mismatch => self.mismatches.increment(1),
            Disposition::InFlight => self.concurrent.increment(1),
            _ => {}
        }
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

/// Makes the series of operations that become unknown on a route.
fn describe_unknown(route: &str) {
    for reason in UnknownReason::ALL {
        unknown(route, reason).increment(0);
    }
}

fn unknown(route: &str, reason: UnknownReason) -> Counter {
    counter!(UNKNOWN.name, "route" => route.to_owned(), "reason" => reason.as_str())
}

/// A store whose calls are counted as `idempotency_store_operations_total`, and timed as
/// `idempotency_store_operation_seconds`. Operations that its steps make unknown are counted as
/// `idempotency_unknown_outcomes_total`: each once, also if many processes share the store.
///
/// ```
/// use justonce_core::{Engine, ManualClock, memory::MemoryStore};
///
/// let store = MemoryStore::new(ManualClock::default());
/// let engine = Engine::new(justonce_http::metered(store));
/// ```
pub fn metered<S>(store: S) -> Observed<S> {
    Observed::new(store, Calls::default())
}

/// The calls of a store and the names of their answers; each may also end with an error.
const CALLS: &[(&str, &[&str])] = &[
    (
        "begin",
        &["claimed", "completed", "failed", "busy", "unknown", "held", "mismatch", "expired"],
    ),
    ("peek", &["claimable", "completed", "failed", "busy", "unknown", "mismatch", "expired"]),
    ("complete", &["applied", "lost"]),
    ("fail", &["applied", "lost"]),
    ("release", &["applied", "lost"]),
    ("renew", &["renewed", "capped", "lost"]),
    ("checkpoint", &["applied", "lost"]),
    ("abandon", &["applied", "held", "lost"]),
    ("resolve", &["applied", "lost"]),
    ("expire", &["applied", "lost"]),
    ("erase", &["applied", "lost"]),
    ("sweep", &["swept"]),
    ("get", &["found", "absent"]),
    ("settled", &["settled"]),
    ("list", &["page"]),
    ("stats", &["stats"]),
    ("health", &["health"]),
    ("sweep_all", &["swept"]),
    ("ready", &["ready"]),
];

/// The handles of all kinds of calls.
struct Calls(RwLock<HashMap<(&'static str, &'static str), CallMeters>>);

impl Default for Calls {
    fn default() -> Self {
        let results = CALLS.iter().flat_map(|(call, results)| {
            results.iter().chain(&[ERROR]).map(|result| (*call, *result))
        });
        let known = results.map(|(call, result)| ((call, result), CallMeters::new(call, result)));
        Self(RwLock::new(known.collect()))
    }
}

const ERROR: &str = "error";

struct CallMeters {
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
        let handles = CallMeters::new(call, status);
        handles.record(seconds);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert((call, status), handles);
    }
}

impl Observer for Calls {
    fn seen(&self, seen: Seen<'_>) {
        self.count(seen.call, seen.result.unwrap_or(ERROR), seen.elapsed.as_secs_f64());
    }

    fn became_unknown(&self, event: &BecameUnknown) {
        // Operations that are no requests have no route: sagas, for example.
        let route = event.scope.as_ref().and_then(|scope| scope.part("route"));
        unknown(route.as_deref().unwrap_or_default(), event.reason).increment(1);
        tracing::warn!(
            target: "justonce::unknown",
            route = route.as_deref(),
            record = %event.id,
            key = event.key.as_ref().map(tracing::field::debug),
            owner = event.owner.as_ref().map(|owner| owner.as_str()),
            reason = event.reason.as_str(),
            cause = event.cause.as_ref().map(|cause| cause.as_str()),
            "an operation is unknown"
        );
    }
}

impl CallMeters {
    fn new(call: &'static str, status: &'static str) -> Self {
        Self {
            count: counter!(STORE_OPERATIONS.name, "operation" => call, "status" => status),
            seconds: histogram!(STORE_SECONDS.name, "operation" => call),
        }
    }

    fn record(&self, seconds: f64) {
        self.count.increment(1);
        self.seconds.record(seconds);
    }
}
