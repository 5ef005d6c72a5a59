//! The circuit breaker of an upstream: pure rules, the time is passed in.

use std::time::Duration;

use tokio::time::Instant;

/// How many parts the window is counted in.
const BUCKETS: u32 = 10;
/// How many connections in a row must fail to open the breaker at once.
const MAX_CONNECT_FAILURES: u32 = 5;
/// How long it stays open at most.
const MAX_OPEN_FOR: Duration = Duration::from_secs(60);

/// When the breaker of an upstream opens. Five failed connections in a row always open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// How far back failures count.
    pub window: Duration,
    /// With fewer requests in the window the share of failures does not count.
    pub min_requests: u32,
    /// The share of failures, in percent, that opens it.
    pub failure_percent: u32,
    /// How long it stays open at first; each failed trial doubles that, up to a minute.
    pub open_for: Duration,
}

/// Which requests a breaker admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// All.
    Closed,
    /// None, for now.
    Open,
    /// One trial.
    HalfOpen,
}

/// How a request ended, as far as it says something about the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestEnd {
    Succeeded,
    NotReached,
    Failed,
    /// Given up by the proxy or the client: says nothing about the upstream.
    Abandoned,
}

/// The breaker of one upstream.
#[derive(Clone, Debug)]
pub(super) struct Breaker {
    settings: BreakerSettings,
    origin: Instant,
    buckets: [Bucket; BUCKETS as usize],
    connect_failures: u32,
    gate: Gate,
    open_for: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    number: u64,
    all: u32,
    failed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Closed,
    Open { until: Instant },
    Trial,
}

impl Breaker {
    /// A closed breaker.
    pub(super) fn new(settings: BreakerSettings, now: Instant) -> Self {
        Self {
            settings,
            origin: now,
            buckets: [Bucket::default(); BUCKETS as usize],
            connect_failures: 0,
            gate: Gate::Closed,
            open_for: settings.open_for,
        }
    }

    pub(super) fn state(&self, now: Instant) -> BreakerState {
        match self.gate {
            Gate::Closed => BreakerState::Closed,
            Gate::Open { until } if now < until => BreakerState::Open,
            Gate::Open { .. } | Gate::Trial => BreakerState::HalfOpen,
        }
    }

    /// Whether a request is admitted, and the new state if it changed: the first request after the
    /// open period is the trial.
    pub(super) fn admit(&mut self, now: Instant) -> (bool, Option<BreakerState>) {
        match self.gate {
            Gate::Closed => (true, None),
            Gate::Open { until } if until <= now => {
                self.gate = Gate::Trial;
                (true, Some(BreakerState::HalfOpen))
            }
            Gate::Open { .. } | Gate::Trial => (false, None),
        }
    }

    /// How long no request will be admitted; nothing if one would be now.
    pub(super) fn closed_for(&self, now: Instant) -> Option<Duration> {
        match self.gate {
            Gate::Closed => None,
            Gate::Open { until } => until.checked_duration_since(now).filter(|d| !d.is_zero()),
            // The trial decides soon.
            Gate::Trial => Some(Duration::from_secs(1)),
        }
    }

    /// Counts the end of a request. Returns the new state if it changed.
    pub(super) fn record(&mut self, now: Instant, end: RequestEnd) -> Option<BreakerState> {
        match (self.gate, end) {
            (Gate::Trial, RequestEnd::Succeeded) => Some(self.close()),
            (Gate::Trial, RequestEnd::NotReached | RequestEnd::Failed) => {
                let longer = self.open_for.saturating_mul(2);
                self.open_for = longer.min(MAX_OPEN_FOR);
                Some(self.open(now))
            }
            // The trial had no result: the next request is one.
            (Gate::Trial, RequestEnd::Abandoned) => {
                self.gate = Gate::Open { until: now };
                None
            }
            (Gate::Closed, RequestEnd::Succeeded | RequestEnd::NotReached | RequestEnd::Failed) => {
                self.count(now, end);
                self.must_open(now).then(|| self.open(now))
            }
            (Gate::Closed, RequestEnd::Abandoned) | (Gate::Open { .. }, _) => None,
        }
    }

    fn open(&mut self, now: Instant) -> BreakerState {
        self.gate = Gate::Open { until: now + self.open_for };
        BreakerState::Open
    }

    fn close(&mut self) -> BreakerState {
        self.buckets = [Bucket::default(); BUCKETS as usize];
        self.connect_failures = 0;
        self.open_for = self.settings.open_for;
        self.gate = Gate::Closed;
        BreakerState::Closed
    }

    fn number(&self, now: Instant) -> u64 {
        let bucket = (self.settings.window / BUCKETS).as_nanos().max(1);
        let passed = now.saturating_duration_since(self.origin).as_nanos();
        u64::try_from(passed / bucket).unwrap_or(u64::MAX)
    }

    fn count(&mut self, now: Instant, end: RequestEnd) {
        self.connect_failures = match end {
            RequestEnd::NotReached => self.connect_failures.saturating_add(1),
            _ => 0,
        };
        let number = self.number(now);
        let at = usize::try_from(number % u64::from(BUCKETS)).unwrap_or_default();
        let Some(bucket) = self.buckets.get_mut(at) else { return };
        if bucket.number != number {
            *bucket = Bucket { number, ..Bucket::default() };
        }
        bucket.all = bucket.all.saturating_add(1);
        bucket.failed = bucket.failed.saturating_add(u32::from(end != RequestEnd::Succeeded));
    }

    fn must_open(&self, now: Instant) -> bool {
        if self.connect_failures >= MAX_CONNECT_FAILURES {
            return true;
        }
        let oldest = self.number(now).saturating_sub(u64::from(BUCKETS) - 1);
        let counted = self.buckets.iter().filter(|bucket| bucket.number >= oldest);
        let (all, failed) = counted.fold((0_u64, 0_u64), |(all, failed), bucket| {
            (all + u64::from(bucket.all), failed + u64::from(bucket.failed))
        });
        failed > 0
            && all >= u64::from(self.settings.min_requests)
            && failed * 100 >= all * u64::from(self.settings.failure_percent)
    }
}

#[cfg(test)]
mod tests {
    use super::RequestEnd::{Abandoned, Failed, NotReached, Succeeded};
    use super::*;

    const SETTINGS: BreakerSettings = BreakerSettings {
        window: Duration::from_secs(10),
        min_requests: 20,
        failure_percent: 50,
        open_for: Duration::from_secs(5),
    };

    struct Bench {
        breaker: Breaker,
        start: Instant,
    }

    impl Bench {
        fn new() -> Self {
            let start = Instant::now();
            Self { breaker: Breaker::new(SETTINGS, start), start }
        }

        fn at(&self, millis: u64) -> Instant {
            self.start + Duration::from_millis(millis)
        }

        fn many(&mut self, at: u64, count: usize, ended: RequestEnd) -> &mut Self {
            for _ in 0..count {
                self.breaker.record(self.at(at), ended);
            }
            self
        }

        fn state(&self, at: u64) -> BreakerState {
            self.breaker.state(self.at(at))
        }

        fn admits(&mut self, at: u64) -> bool {
            self.breaker.admit(self.at(at)).0
        }
    }

    #[test]
    fn what_opens_it() {
        type Step = (u64, usize, RequestEnd);
        let table: &[(&str, &[Step], BreakerState)] = &[
            ("half of enough", &[(0, 10, Succeeded), (0, 10, Failed)], BreakerState::Open),
            ("too few", &[(0, 9, Succeeded), (0, 10, Failed)], BreakerState::Closed),
            ("a smaller share", &[(0, 11, Succeeded), (0, 10, Failed)], BreakerState::Closed),
            ("spread over it", &[(0, 10, Succeeded), (9_900, 10, Failed)], BreakerState::Open),
            ("out of the window", &[(0, 10, Failed), (10_000, 10, Failed)], BreakerState::Closed),
            ("failed connections", &[(0, 5, NotReached)], BreakerState::Open),
            (
                "not in a row",
                &[(0, 4, NotReached), (0, 1, Succeeded), (0, 4, NotReached)],
                BreakerState::Closed,
            ),
            ("abandoned says nothing", &[(0, 100, Abandoned)], BreakerState::Closed),
        ];
        for (name, steps, state) in table {
            let mut bench = Bench::new();
            let mut last = 0;
            for (at, count, ended) in *steps {
                bench.many(*at, *count, *ended);
                last = *at;
            }
            assert_eq!(bench.state(last), *state, "{name}");
        }
    }

    #[test]
    fn open_lets_nothing_through_then_one_trial() {
        let mut bench = Bench::new();
        bench.many(0, 5, NotReached);
        assert!(!bench.admits(4_999));
        assert_eq!(bench.breaker.closed_for(bench.at(1_000)), Some(Duration::from_secs(4)));
        assert_eq!(bench.breaker.closed_for(bench.at(5_000)), None);
        assert_eq!(bench.state(5_000), BreakerState::HalfOpen);
        assert!(bench.admits(5_000));
        assert!(!bench.admits(5_001), "only one trial");
        assert!(bench.breaker.closed_for(bench.at(5_001)).is_some());
        let change = bench.breaker.record(bench.at(5_100), Succeeded);
        assert_eq!(change, Some(BreakerState::Closed));
        assert!(bench.admits(5_101));
    }

    #[test]
    fn failed_trials_double_the_pause_up_to_a_minute() {
        let mut bench = Bench::new();
        bench.many(0, 5, NotReached);
        let mut now = 0;
        for pause in [5, 10, 20, 40, 60, 60] {
            now += pause * 1_000;
            assert!(!bench.admits(now - 1), "{pause}");
            assert!(bench.admits(now), "{pause}");
            let change = bench.breaker.record(bench.at(now), Failed);
            assert_eq!(change, Some(BreakerState::Open));
        }
        // A success forgets all of it.
        now += 60_000;
        assert!(bench.admits(now));
        bench.many(now, 1, Succeeded).many(now, 4, NotReached);
        assert_eq!(bench.state(now), BreakerState::Closed);
        bench.many(now, 1, NotReached);
        assert!(!bench.admits(now + 4_999));
        assert!(bench.admits(now + 5_000));
    }

    #[test]
    fn an_abandoned_trial_is_followed_by_another() {
        let mut bench = Bench::new();
        bench.many(0, 5, NotReached);
        assert!(bench.admits(5_000));
        bench.many(5_100, 1, Abandoned);
        assert!(bench.admits(5_100));
    }
}
