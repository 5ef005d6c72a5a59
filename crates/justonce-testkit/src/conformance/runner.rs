//! Runs many scripts on one store at once. Time moves from moment to moment; at each moment all
//! scripts that are due take their steps concurrently.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use justonce_core::Timestamp;
use tokio::task::JoinSet;

use super::backend::Backend;
use super::coverage::Coverage;
use super::deviation::{Deviation, ensure};
use super::run::Run;
use super::setting::Setting;

/// How many steps are on their way at once: enough for a store that groups writes.
const IN_FLIGHT: usize = 256;
/// How many deviations are shown.
const SHOWN: usize = 20;

/// What all scripts share.
#[derive(Debug)]
pub(super) struct Stage<B: Backend> {
    pub(super) backend: B,
    pub(super) store: Arc<B::Store>,
    pub(super) setting: Setting,
    pub(super) tokens: AtomicU64,
}

impl<B: Backend> Stage<B> {
    pub(super) fn new(backend: B) -> Result<Self, Deviation> {
        Ok(Self {
            store: backend.store(),
            setting: Setting::new(backend.clock_slack())?,
            tokens: AtomicU64::new(0),
            backend,
        })
    }

    /// The store's time. A clock that stands still was read when the moment began.
    pub(super) async fn now(&self, moment: Timestamp) -> Result<Timestamp, Deviation> {
        if self.setting.slack.is_zero() {
            return Ok(moment);
        }
        Ok(self.backend.now().await?)
    }

    /// Moves the store's clock to a moment, or leaves it if it is there already.
    async fn go_to(&self, moment: Timestamp) -> Result<Timestamp, Deviation> {
        let before = self.backend.now().await?;
        if before < moment {
            self.backend.advance(moment.since(before)).await?;
        }
        let now = self.backend.now().await?;
        ensure!(
            now >= moment && now.since(moment) <= self.setting.slack,
            "the store's clock shows {now} where it should show {moment}, give or take {:?}",
            self.setting.slack
        );
        Ok(now)
    }
}

/// Runs all scripts to their ends, or until more have deviated than are shown. The runs come back
/// in their order.
pub(super) async fn play<B: Backend>(
    stage: &Arc<Stage<B>>,
    runs: Vec<Run>,
) -> Result<Vec<Run>, Deviation> {
    let mut schedule = Schedule::default();
    let mut ended = BTreeMap::new();
    let now = stage.backend.now().await?;
    for (number, run) in runs.into_iter().enumerate() {
        schedule.add(number, run, now, stage, &mut ended);
    }
    while let Some((moment, due)) = schedule.moments.pop_first() {
        let now = stage.go_to(moment).await?;
        for (number, run) in take_steps(stage, due, now).await? {
            schedule.add(number, run, now, stage, &mut ended);
        }
        if ended.values().filter(|run| run.deviation.is_some()).count() >= SHOWN {
            break;
        }
    }
    Ok(ended.into_values().collect())
}

/// Which runs are due when.
#[derive(Default)]
struct Schedule {
    moments: BTreeMap<Timestamp, Vec<(usize, Run)>>,
}

impl Schedule {
    fn add<B: Backend>(
        &mut self,
        number: usize,
        mut run: Run,
        now: Timestamp,
        stage: &Stage<B>,
        ended: &mut BTreeMap<usize, Run>,
    ) {
        match run.due(now, stage) {
            Some(moment) => self.moments.entry(moment).or_default().push((number, run)),
            None => {
                ended.insert(number, run);
            }
        }
    }
}

/// All steps of one moment, so many at once.
async fn take_steps<B: Backend>(
    stage: &Arc<Stage<B>>,
    due: Vec<(usize, Run)>,
    now: Timestamp,
) -> Result<Vec<(usize, Run)>, Deviation> {
    let count = due.len();
    let queue = Arc::new(Mutex::new(due.into_iter()));
    let mut workers = JoinSet::new();
    for _ in 0..IN_FLIGHT.min(count) {
        let (stage, queue) = (Arc::clone(stage), Arc::clone(&queue));
        workers.spawn(async move {
            let mut done = Vec::new();
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((number, mut run)) = next else {
                    return done;
                };
                run.take_due(&stage, now).await;
                done.push((number, run));
            }
        });
    }
    let mut done = Vec::with_capacity(count);
    while let Some(finished) = workers.join_next().await {
        done.extend(finished?);
    }
    Ok(done)
}

/// Collects what the runs found: their coverage, or their first deviations.
pub(super) fn collect(runs: &[Run]) -> Result<Coverage, Deviation> {
    let failed: Vec<&Deviation> = runs.iter().filter_map(|run| run.deviation.as_ref()).collect();
    if failed.is_empty() {
        let mut coverage = Coverage::default();
        for run in runs {
            coverage.merge(&run.coverage);
        }
        return Ok(coverage);
    }
    let mut text = format!("{} of {} scripts went another way", failed.len(), runs.len());
    for deviation in failed.iter().take(SHOWN) {
        text.push_str("\n\n");
        text.push_str(&deviation.to_string());
    }
    Err(Deviation::new(text))
}
