//! Finds what is unknown, asks about it, and resolves it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use super::ask::{Probe, Unresolved};
use super::pace::Pace;
use super::report::{ProbeEnd, ProbeReport};
use super::settings::ProberSettings;
use crate::clock::Timestamp;
use crate::engine::{Engine, Settlement};
use crate::error::{StoreError, StoreResult};
use crate::protocol::{Resolution, Resolve, Resolver, StateName};
use crate::record_id::RecordId;
use crate::store::{Cursor, ListQuery};
use crate::worker::{Next, Rounds, Worker, WorkerHealth};

/// How many records one look into the store may bring.
const PAGE: usize = 256;
/// A prober that runs in the background; it stops when this is dropped. Questions that are under
/// way are dropped with it, and nothing is lost: the next prober asks them again.
#[derive(Debug)]
pub struct Prober {
    worker: Worker,
    pace: Arc<Mutex<Pace>>,
}

impl Prober {
    /// Asks about this operation soon, because a caller waits for it, if it is among those that
    /// this prober asks about.
    pub fn prioritize(&self, id: RecordId) {
        if lock(&self.pace).prioritize(id) {
            self.worker.wake();
        }
    }

    /// How the worker of this prober is doing; a page of unknown operations is one round.
    #[must_use]
    pub fn health(&self) -> WorkerHealth {
        self.worker.health()
    }
}

/// A panic elsewhere does not matter: the back-offs are only kept to ask less often.
fn lock(pace: &Mutex<Pace>) -> MutexGuard<'_, Pace> {
    pace.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Asks once about everything that is unknown now, and resolves it by the answers.
    ///
    /// ```
    /// use justonce_core::engine::{Probed, ProberSettings, Unresolved};
    /// use justonce_core::{Engine, ManualClock, memory::MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = Engine::new(MemoryStore::new(ManualClock::default()));
    /// let probe = async |_: Unresolved| Probed::AskAgain;
    /// let report = engine.probe_unknown(ProberSettings::new("books"), probe).await?;
    /// assert_eq!(report.found, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the store cannot be read. What was resolved before stays so.
    pub async fn probe_unknown(
        &self,
        settings: ProberSettings,
        probe: impl Probe,
    ) -> StoreResult<ProbeReport> {
        let mut pages = Pages::new(self, settings, probe);
        loop {
            let report = pages.page().await?;
            if !report.more {
                return Ok(report);
            }
        }
    }

    /// Asks in the background, again and again, until the returned value is dropped.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use = "the prober stops when it is dropped"]
    pub fn start_prober(&self, settings: ProberSettings, probe: impl Probe) -> Prober {
        let engine = self.clone();
        let schedule =
            self.schedule("prober", settings.every).jitter(move || engine.inner.entropy.next_u32());
        let pages = Pages::new(self, settings, probe);
        let pace = Arc::clone(&pages.pace);
        Prober { worker: Worker::start(schedule, pages), pace }
    }
}

/// What is unknown, page by page.
struct Pages<P> {
    engine: Engine,
    settings: Arc<ProberSettings>,
    probe: Arc<P>,
    pace: Arc<Mutex<Pace>>,
    places: Arc<Semaphore>,
    /// Where time begins for the back-offs: they are a matter of this process only.
    start: Instant,
    after: Option<Cursor>,
    report: ProbeReport,
}

impl<P: Probe> Pages<P> {
    fn new(engine: &Engine, settings: ProberSettings, probe: P) -> Self {
        Self {
            engine: engine.clone(),
            pace: Arc::new(Mutex::new(Pace::new(settings.back_off))),
            places: Arc::new(Semaphore::new(settings.at_once.max(1))),
            settings: Arc::new(settings),
            probe: Arc::new(probe),
            start: Instant::now(),
            after: None,
            report: ProbeReport::default(),
        }
    }

    /// Asks about one page of what is unknown; the report is of the whole round so far.
    async fn page(&mut self) -> StoreResult<ProbeReport> {
        if self.after.is_none() {
            self.report = ProbeReport::default();
        }
        let query = ListQuery {
            state: Some(StateName::Unknown),
            scope: self.settings.scope.clone(),
            unchanged_for: Some(self.settings.after),
            limit: PAGE,
            after: self.after,
            only: None,
        };
        let page = self.engine.store().list(&query).await?;
        self.after = page.next;
        self.report.more = page.next.is_some();
        let found = page.records.into_iter().filter_map(Unresolved::of);
        self.ask_all(found.collect()).await;
        if !self.report.more {
            lock(&self.pace).round_over();
        }
        Ok(self.report)
    }

    /// Asks about those whose turn it is, some at once.
    async fn ask_all(&mut self, found: Vec<Unresolved>) {
        let mut asking = JoinSet::new();
        for about in found {
            self.report.found += 1;
            let now = self.now();
            if !lock(&self.pace).is_due(about.id, about.fence, now) {
                continue;
            }
            // The semaphore is never closed.
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return };
            self.report.asked += 1;
            let question = Question {
                engine: self.engine.clone(),
                settings: Arc::clone(&self.settings),
                probe: Arc::clone(&self.probe),
                about,
            };
            asking.spawn(async move {
                let _place = place;
                let about = question.about.clone();
                (about, question.resolve().await)
            });
            while let Some(ended) = asking.try_join_next() {
                self.conclude(ended.ok());
            }
        }
        while let Some(ended) = asking.join_next().await {
            self.conclude(ended.ok());
        }
    }

    /// Remembers what became of a question; nothing if it panicked outside the probe.
    fn conclude(&mut self, ended: Option<(Unresolved, ProbeEnd)>) {
        let Some((about, end)) = ended else { return };
        self.report.count(&end);
        self.probe.ended(&about, &end);
        let now = self.now();
        let jitter = self.engine.inner.entropy.next_u32();
        let mut pace = lock(&self.pace);
        match end {
            ProbeEnd::Resolved(_) | ProbeEnd::Lost(_) => pace.forget(about.id),
            ProbeEnd::Unclear | ProbeEnd::TooEarly | ProbeEnd::NoAnswer | ProbeEnd::Store(_) => {
                pace.unclear(about.id, about.fence, now, jitter);
            }
        }
    }

    /// How long this prober has been working.
    fn now(&self) -> Timestamp {
        Timestamp::ZERO.after(self.start.elapsed())
    }
}

impl<P: Probe> Rounds for Pages<P> {
    type Error = StoreError;

    async fn round(&mut self) -> StoreResult<Next> {
        let page = self.page().await;
        if page.as_ref().is_ok_and(|report| report.more) {
            return Ok(Next::More);
        }
        self.after = None;
        page.map(|_| Next::Pause)
    }
}

/// One question, and what follows from its answer.
struct Question<P> {
    engine: Engine,
    settings: Arc<ProberSettings>,
    probe: Arc<P>,
    about: Unresolved,
}

impl<P: Probe> Question<P> {
    async fn resolve(self) -> ProbeEnd {
        let Self { engine, settings, probe, about } = self;
        let (id, fence) = (about.id, about.fence);
        let scope = about.scope.clone();
        // In a task of its own, so that a panic in it is one question without an answer.
        let asked = tokio::spawn({
            let limit = settings.timeout;
            async move { timeout(limit, probe.ask(about)).await }
        });
        let answer = match AbortOnDrop(asked).ended().await {
            Some(Ok(probed)) => probed,
            Some(Err(_)) | None => return ProbeEnd::NoAnswer,
        };
        let Some((resolution, why)) = answer.resolution() else { return ProbeEnd::Unclear };
        let how = resolution.how();
        if resolution == Resolution::Release {
            match engine.is_unknown_for(id, scope, settings.release_after).await {
                Ok(true) => {}
                Ok(false) => return ProbeEnd::TooEarly,
                Err(error) => return ProbeEnd::Store(error),
            }
        }
        let by = Resolver::probe(&settings.name);
        match engine.resolve(id, fence, Resolve { resolution, by, why }).await {
            Ok(Settlement::Stored) => ProbeEnd::Resolved(how),
            Ok(Settlement::Lost(lost)) => ProbeEnd::Lost(lost),
            Err(error) => ProbeEnd::Store(error),
        }
    }
}

/// A task that is aborted when this is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> AbortOnDrop<T> {
    /// What the task gave; nothing if it panicked.
    async fn ended(mut self) -> Option<T> {
        (&mut self.0).await.ok()
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
