//! The adaptive commit delay.
//!
//! Callers that commit one after the other fall into two halves: while one half is synced, the
//! other gathers. On a slow disk it pays to wait a moment for all of them, so that they share one
//! sync; on a fast one the wait costs more than it saves. Which of the two it is depends on the
//! disk, the callers and the load, so the delay finds out by trying: a few batches without, a few
//! with, then it stays with what brought more, and tries again after a while.

use std::time::Duration;

/// How many batches a trial has.
const TRIAL_BATCHES: u32 = 32;
/// How many batches of a phase do not count yet.
const SETTLING_BATCHES: u32 = 8;
/// How many batches the better way is kept before the next trial.
const KEPT_BATCHES: u32 = 1024;
/// Waiting must bring at least this much more, or it is left.
const WORTH_IT: f64 = 1.1;
/// At most this part of a sync's time is waited.
const WAIT_DIVISOR: u32 = 2;
/// The longest wait.
const MAX_WAIT: Duration = Duration::from_millis(2);
/// The weight of the past in the running average of syncs: 7 of 8 parts.
const SMOOTHING: u32 = 8;

/// Decides how long the writer waits for more before it commits.
#[derive(Clone, Debug)]
pub struct CommitDelay {
    phase: Phase,
    sync: Duration,
    last_batch: usize,
    /// How many callers there seem to be.
    cohort: usize,
    /// How many batches of this phase were seen.
    seen: u32,
    window: Window,
    without: Window,
}

/// What is being tried or kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Off,
    TryWithout,
    TryWith,
    Without,
    With,
}

/// What a phase has brought so far.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    batches: u32,
    items: usize,
    time: Duration,
    syncs: Duration,
}

impl Window {
    /// Items a second, if every sync took this long: the speed of a disk varies, and two trials
    /// must still be comparable.
    fn rate(&self, sync: Duration) -> f64 {
        let between = self.time.saturating_sub(self.syncs);
        let time = between + sync * self.batches;
        self.items as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn mean_sync(&self) -> Duration {
        self.syncs / self.batches.max(1)
    }

    /// Whether this is worth the wait that the other did without.
    fn beats(&self, other: &Self) -> bool {
        let sync = (self.mean_sync() + other.mean_sync()) / 2;
        self.rate(sync) > other.rate(sync) * WORTH_IT
    }
}

impl CommitDelay {
    /// A delay that adapts to the disk and the callers.
    #[must_use]
    pub fn adaptive() -> Self {
        Self::starting(Phase::TryWithout)
    }

    /// No delay.
    #[must_use]
    pub fn none() -> Self {
        Self::starting(Phase::Off)
    }

    fn starting(phase: Phase) -> Self {
        Self {
            phase,
            sync: Duration::ZERO,
            last_batch: 0,
            cohort: 0,
            seen: 0,
            window: Window::default(),
            without: Window::default(),
        }
    }

    /// Learns from a batch: its size, whether it was waited for, how long its sync took, and how
    /// long it was since the batch before it was done.
    pub fn observe(&mut self, batch: usize, waited: bool, sync: Duration, since_last: Duration) {
        // Now and then a sync takes ten times as long; the wait must not grow with those.
        let usual = if self.sync.is_zero() { sync } else { sync.min(self.sync * 2) };
        self.sync = (self.sync * (SMOOTHING - 1) + usual) / SMOOTHING;
        self.estimate_cohort(batch, waited);
        self.seen += 1;
        // The first batches of a phase are still shaped by the one before, and a pause in which
        // nobody came says nothing about the delay.
        let paused = since_last > sync + self.sync * 2 + MAX_WAIT;
        if self.seen > SETTLING_BATCHES && !paused {
            self.window.batches += 1;
            self.window.items += batch;
            self.window.time += since_last;
            self.window.syncs += sync;
        }
        let tried = self.window.batches >= TRIAL_BATCHES;
        let next = match self.phase {
            Phase::TryWithout if tried => {
                self.without = self.window;
                Phase::TryWith
            }
            Phase::TryWith if tried => {
                if self.window.beats(&self.without) {
                    Phase::With
                } else {
                    Phase::Without
                }
            }
            Phase::With | Phase::Without if self.seen >= KEPT_BATCHES => {
                self.cohort = 0;
                Phase::TryWithout
            }
            _ => return,
        };
        self.phase = next;
        self.seen = 0;
        self.window = Window::default();
    }

    /// Without waiting, two batches in a row hold all callers, and a few of them twice. With
    /// waiting, a batch that did not come together tells that there are fewer, and one that was
    /// there at once that there are more.
    fn estimate_cohort(&mut self, batch: usize, waited: bool) {
        let both = batch + self.last_batch;
        match self.phase {
            Phase::TryWithout if self.seen > 0 => self.cohort = self.cohort.max(both),
            Phase::TryWith | Phase::With if !waited => self.cohort = self.cohort.max(both),
            Phase::TryWith | Phase::With if batch < self.cohort => {
                self.cohort -= (self.cohort - batch).div_ceil(4);
            }
            _ => {}
        }
        self.last_batch = batch;
    }

    /// How many items to wait for and how long, if that pays with `waiting` items there already.
    #[must_use]
    pub fn worth_waiting(&self, waiting: usize) -> Option<(usize, Duration)> {
        let waits = matches!(self.phase, Phase::TryWith | Phase::With);
        (waits && waiting < self.cohort)
            .then(|| (self.cohort, (self.sync / WAIT_DIVISOR).min(MAX_WAIT)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Callers in two halves that take turns, on a disk with this sync: when the writer waits,
    /// all share one sync, after the turnaround.
    fn run(delay: &mut CommitDelay, half: usize, sync: Duration, turnaround: Duration) -> u32 {
        let mut waited = 0;
        for _ in 0..10_000 {
            match delay.worth_waiting(half) {
                Some((enough, wait)) if wait >= turnaround => {
                    waited += 1;
                    delay.observe(enough.min(2 * half), true, sync, sync + turnaround);
                }
                Some((_, wait)) => {
                    waited += 1;
                    delay.observe(half, true, sync, sync + wait);
                }
                None => delay.observe(half, false, sync, sync),
            }
        }
        waited
    }

    #[test]
    fn on_a_slow_disk_two_halves_become_one() {
        let mut delay = CommitDelay::adaptive();
        let waited = run(&mut delay, 16, Duration::from_millis(4), Duration::from_micros(200));
        assert!(waited > 9_000, "{waited}");
        assert_eq!(delay.cohort, 32);
    }

    #[test]
    fn a_fast_disk_is_hardly_waited_for() {
        let mut delay = CommitDelay::adaptive();
        let waited = run(&mut delay, 16, Duration::from_micros(100), Duration::from_micros(200));
        assert!(waited < 400, "{waited}");
    }

    #[test]
    fn a_lone_caller_hardly_ever_waits() {
        let mut delay = CommitDelay::adaptive();
        let sync = Duration::from_millis(4);
        let mut waited = 0;
        for _ in 0..10_000 {
            let wait = delay.worth_waiting(1).map_or(Duration::ZERO, |(_, wait)| wait);
            waited += u32::from(!wait.is_zero());
            delay.observe(1, !wait.is_zero(), sync, sync + wait);
        }
        assert!(waited < 400, "{waited}");
    }

    #[test]
    fn more_callers_are_noticed() {
        let mut delay = CommitDelay::adaptive();
        run(&mut delay, 16, Duration::from_millis(4), Duration::from_micros(200));
        run(&mut delay, 64, Duration::from_millis(4), Duration::from_micros(200));
        assert_eq!(delay.cohort, 128);
    }

    #[test]
    fn it_can_be_turned_off() {
        let mut delay = CommitDelay::none();
        assert_eq!(run(&mut delay, 16, Duration::from_millis(4), Duration::from_micros(200)), 0);
    }
}
