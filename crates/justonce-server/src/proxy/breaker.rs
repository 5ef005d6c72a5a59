//! When an upstream is left alone: pure rules, time is passed in.

use std::time::Duration;

use tokio::time::Instant;

/// How many parts the window is counted in.
const BUCKETS: u32 = 10;

/// When an upstream is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Whether it ever opens.
    pub enabled: bool,
    /// How far back failures count.
    pub window: Duration,
    /// How many requests there must be in the window before their share of failures counts.
    pub min_requests: u32,
    /// The share of failures, in percent, that opens it.
    pub failure_percent: u32,
    /// How many connections in a row must fail to open it at once.
    pub connect_failures: u32,
    /// How long it stays open first; each failed trial doubles that.
    pub open_for: Duration,
    /// How long it stays open at most.
    pub open_at_most: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            window: Duration::from_secs(10),
            min_requests: 20,
            failure_percent: 50,
            connect_failures: 5,
            open_for: Duration::from_secs(5),
            open_at_most: Duration::from_secs(60),
        }
    }
}

/// What the breaker of an upstream lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Everything.
    Closed,
    /// Nothing, for now.
    Open,
    /// One trial.
    HalfOpen,
}

/// A breaker changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// What it lets through from now on.
    pub to: BreakerState,
}

/// How a request ended, as far as its upstream can be blamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Well,
    NotReached,
    Badly,
    /// Given up by ourselves: says nothing about the upstream.
    Abandoned,
}

/// The breaker of one upstream.
#[derive(Clone, Debug)]
pub struct Breaker {
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
    /// A closed one.
    #[must_use]
    pub fn new(settings: BreakerSettings, now: Instant) -> Self {
        Self {
            settings,
            origin: now,
            buckets: [Bucket::default(); BUCKETS as usize],
            connect_failures: 0,
            gate: Gate::Closed,
            open_for: settings.open_for,
        }
    }

    /// What it lets through.
    #[must_use]
    pub fn state(&self, now: Instant) -> BreakerState {
        match self.gate {
            Gate::Closed => BreakerState::Closed,
            Gate::Open { until } if now < until => BreakerState::Open,
            Gate::Open { .. } | Gate::Trial => BreakerState::HalfOpen,
        }
    }

    /// Whether a request may go, and what changed by its going: the first one after the time is
    /// up is the trial.
    pub(super) fn admit(&mut self, now: Instant) -> (bool, Option<Change>) {
        match self.gate {
            Gate::Closed => (true, None),
            Gate::Open { until } if until <= now => {
                self.gate = Gate::Trial;
                (true, Some(Change { to: BreakerState::HalfOpen }))
            }
            Gate::Open { .. } | Gate::Trial => (false, None),
        }
    }

    /// How long nothing will be let through: nothing if something would be, at once.
    pub(super) fn closed_for(&self, now: Instant) -> Option<Duration> {
        match self.gate {
            Gate::Closed => None,
            Gate::Open { until } => until.checked_duration_since(now).filter(|d| !d.is_zero()),
            // The trial decides any moment now.
            Gate::Trial => Some(Duration::from_secs(1)),
        }
    }

    /// Counts a request's end.
    pub(super) fn record(&mut self, now: Instant, ended: Ended) -> Option<Change> {
        match (self.gate, ended) {
            (Gate::Trial, Ended::Well) => Some(self.close()),
            (Gate::Trial, Ended::NotReached | Ended::Badly) => {
                let longer = self.open_for.saturating_mul(2);
                self.open_for = longer.min(self.settings.open_at_most);
                Some(self.open(now))
            }
            // The trial told nothing: the next request is one.
            (Gate::Trial, Ended::Abandoned) => {
                self.gate = Gate::Open { until: now };
                None
            }
            (Gate::Closed, Ended::Well | Ended::NotReached | Ended::Badly) => {
                self.count(now, ended);
                self.is_too_bad(now).then(|| self.open(now))
            }
            (Gate::Closed, Ended::Abandoned) | (Gate::Open { .. }, _) => None,
        }
    }

    fn open(&mut self, now: Instant) -> Change {
        self.gate = Gate::Open { until: now + self.open_for };
        Change { to: BreakerState::Open }
    }

    fn close(&mut self) -> Change {
        self.buckets = [Bucket::default(); BUCKETS as usize];
        self.connect_failures = 0;
        self.open_for = self.settings.open_for;
        self.gate = Gate::Closed;
        Change { to: BreakerState::Closed }
    }

    fn number(&self, now: Instant) -> u64 {
        let bucket = (self.settings.window / BUCKETS).as_nanos().max(1);
        let passed = now.saturating_duration_since(self.origin).as_nanos();
        u64::try_from(passed / bucket).unwrap_or(u64::MAX)
    }

    fn count(&mut self, now: Instant, ended: Ended) {
        self.connect_failures = match ended {
            Ended::NotReached => self.connect_failures.saturating_add(1),
            _ => 0,
        };
        let number = self.number(now);
        let at = usize::try_from(number % u64::from(BUCKETS)).unwrap_or_default();
        let Some(bucket) = self.buckets.get_mut(at) else { return };
        if bucket.number != number {
            *bucket = Bucket { number, ..Bucket::default() };
        }
        bucket.all = bucket.all.saturating_add(1);
        bucket.failed = bucket.failed.saturating_add(u32::from(ended != Ended::Well));
    }

    fn is_too_bad(&self, now: Instant) -> bool {
        if !self.settings.enabled {
            return false;
        }
        if self.connect_failures >= self.settings.connect_failures {
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
    use super::Ended::{Abandoned, Badly, NotReached, Well};
    use super::*;

    struct Bench {
        breaker: Breaker,
        start: Instant,
    }

    impl Bench {
        fn new() -> Self {
            let start = Instant::now();
            Self { breaker: Breaker::new(BreakerSettings::default(), start), start }
        }

        fn at(&self, millis: u64) -> Instant {
            self.start + Duration::from_millis(millis)
        }

        fn many(&mut self, at: u64, count: usize, ended: Ended) -> &mut Self {
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
        type Step = (u64, usize, Ended);
        let table: &[(&str, &[Step], BreakerState)] = &[
            ("half of enough", &[(0, 10, Well), (0, 10, Badly)], BreakerState::Open),
            ("too few", &[(0, 9, Well), (0, 10, Badly)], BreakerState::Closed),
            ("a smaller share", &[(0, 11, Well), (0, 10, Badly)], BreakerState::Closed),
            ("spread over it", &[(0, 10, Well), (9_900, 10, Badly)], BreakerState::Open),
            ("out of the window", &[(0, 10, Badly), (10_000, 10, Badly)], BreakerState::Closed),
            ("failed connections", &[(0, 5, NotReached)], BreakerState::Open),
            (
                "not in a row",
                &[(0, 4, NotReached), (0, 1, Well), (0, 4, NotReached)],
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
        let change = bench.breaker.record(bench.at(5_100), Well);
        assert_eq!(change, Some(Change { to: BreakerState::Closed }));
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
            let change = bench.breaker.record(bench.at(now), Badly);
            assert_eq!(change, Some(Change { to: BreakerState::Open }));
        }
        // A success forgets all of it.
        now += 60_000;
        assert!(bench.admits(now));
        bench.many(now, 1, Well).many(now, 4, NotReached);
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
