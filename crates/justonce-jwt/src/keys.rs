//! The keys of one issuer, kept up to date.
//!
//! They are fetched in rounds, and once more when a token names a key that is not among them. Only
//! one fetch runs at a time, and everybody who needs its result waits for the same one. It runs in
//! a task of its own: a client that leaves does not end it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use justonce_core::worker::{Next, Schedule, Worker};
use justonce_core::{BackOff, Clock};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::fetch::{FETCH_TIMEOUT, fetch};
use crate::key_set::KeySet;
use crate::metrics::IssuerMeters;
use crate::settings::{IssuerSettings, KeySource};

/// The pause between two looks at a file: it costs next to nothing.
const FILE_PAUSE: Duration = Duration::from_secs(5);
/// The pause after a first failure; it doubles up to the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// Beyond its own limit, a fetch must also be noticed.
const NOTICE: Duration = Duration::from_secs(1);

/// An issuer and its keys. The rounds of fetches end when it is dropped.
pub(crate) struct Issuer {
    pub(crate) settings: Arc<IssuerSettings>,
    pub(crate) keys: Arc<Keys>,
    _rounds: Worker,
}

/// The keys of an issuer, and the fetches that keep them up to date.
pub(crate) struct Keys {
    settings: Arc<IssuerSettings>,
    clock: Arc<dyn Clock>,
    known: ArcSwapOption<Known>,
    /// Keys from before a change of the settings: they count if the first fetch fails.
    before: Option<Arc<Known>>,
    progress: Mutex<Progress>,
    /// The number of the last fetch that has ended.
    ended: watch::Sender<u64>,
    meters: IssuerMeters,
}

/// Keys that were fetched.
pub(crate) struct Known {
    pub(crate) set: Arc<KeySet>,
    /// Another number for each change.
    pub(crate) generation: u64,
    content: blake3::Hash,
    fetched: Instant,
}

#[derive(Default)]
struct Progress {
    /// The number of the last fetch that has begun, and when that was.
    begun: u64,
    begun_at: Option<Instant>,
    has_succeeded: bool,
}

/// What becomes of the wish for newer keys.
pub(crate) enum Demand {
    /// They come, or not, with the end of the fetch of this number. One that had begun before may
    /// have read what was there before.
    Wait { number: u64, is_new: bool },
    /// The keys were fetched just before.
    JustFetched,
    /// A fetch has just failed; there is another one after this time.
    JustFailed(Duration),
}

impl Issuer {
    /// Begins with a fetch at once. If that fails, the keys count that an issuer of other settings
    /// had from the same place.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub(crate) fn start(
        settings: IssuerSettings,
        clock: Arc<dyn Clock>,
        schedule: impl FnOnce(Duration) -> Schedule,
        before: Option<&Self>,
    ) -> Self {
        let is_same = |old: &&Self| {
            old.settings.issuer == settings.issuer && old.settings.keys == settings.keys
        };
        let before = before.filter(is_same).and_then(|old| old.keys.known());
        let settings = Arc::new(settings);
        let keys = Arc::new(Keys {
            meters: IssuerMeters::of(&settings.name),
            settings: Arc::clone(&settings),
            clock,
            known: ArcSwapOption::empty(),
            before,
            progress: Mutex::default(),
            ended: watch::Sender::new(0),
        });
        let pause = match settings.keys {
            KeySource::File(_) => settings.refresh.min(FILE_PAUSE),
            KeySource::Url(_) => settings.refresh,
        };
        let back_off = BackOff { first: FIRST_RETRY.min(pause), max: LONGEST_RETRY.min(pause) };
        // Begun here, so that the first request already waits for it.
        let mut first = Some(keys.begin(&mut keys.progress()));
        let fetched = Arc::clone(&keys);
        let round = move || {
            let (keys, first) = (Arc::clone(&fetched), first.take());
            async move { keys.round(first).await }
        };
        let rounds = Worker::start(schedule(pause).back_off(back_off), round);
        Self { settings, keys, _rounds: rounds }
    }
}

impl Keys {
    /// The keys; nothing if there are none, or they are too old to count.
    pub(crate) fn known(&self) -> Option<Arc<Known>> {
        let known = self.known.load_full()?;
        (known.fetched.elapsed() <= self.settings.max_age).then_some(known)
    }

    /// Wishes for newer keys than there are.
    pub(crate) fn demand(self: &Arc<Self>) -> Demand {
        let mut progress = self.progress();
        if progress.begun > *self.ended.borrow() {
            return Demand::Wait { number: progress.begun, is_new: false };
        }
        let pause = self.settings.unknown_key_pause;
        let since = progress.begun_at.map_or(pause, |begun| begun.elapsed());
        if since >= pause {
            return Demand::Wait { number: self.begin(&mut progress), is_new: true };
        }
        match progress.has_succeeded {
            true => Demand::JustFetched,
            // The rounds try again before.
            false => Demand::JustFailed((pause - since).min(LONGEST_RETRY)),
        }
    }

    /// Waits for the end of a fetch.
    pub(crate) async fn wait(&self, number: u64) {
        let mut ended = self.ended.subscribe();
        let _ = timeout(FETCH_TIMEOUT + NOTICE, ended.wait_for(|ended| *ended >= number)).await;
    }

    /// Whether the last fetch has succeeded.
    pub(crate) fn has_succeeded(&self) -> bool {
        self.progress().has_succeeded
    }

    /// One round: a fetch, or the end of one that has begun.
    async fn round(self: &Arc<Self>, begun: Option<u64>) -> Result<Next, &'static str> {
        let number = begun.unwrap_or_else(|| {
            let mut progress = self.progress();
            match progress.begun {
                begun if begun > *self.ended.borrow() => begun,
                _ => self.begin(&mut progress),
            }
        });
        self.wait(number).await;
        // What failed was logged there.
        if self.has_succeeded() { Ok(Next::Pause) } else { Err("the keys cannot be had") }
    }

    /// Begins a fetch, in a task of its own.
    fn begin(self: &Arc<Self>, progress: &mut Progress) -> u64 {
        progress.begun += 1;
        progress.begun_at = Some(Instant::now());
        let fetching = Fetching { keys: Arc::clone(self), number: progress.begun, result: None };
        tokio::spawn(async move {
            let result = fetch(&fetching.keys.settings.keys).await;
            fetching.end(result);
        });
        progress.begun
    }

    /// Takes over what was fetched. Keys that cannot be used change nothing.
    fn take(&self, document: &[u8]) -> Result<(), String> {
        let content = blake3::hash(document);
        let before = self.known.load_full();
        let fetched = Instant::now();
        let known = match before.filter(|before| before.content == content) {
            Some(same) => {
                self.meters.unchanged.increment(1);
                let (set, generation) = (Arc::clone(&same.set), same.generation);
                Known { set, generation, content, fetched }
            }
            None => {
                let set = KeySet::parse(document).map_err(|why| why.to_string())?;
                let generation = self.known.load().as_ref().map_or(1, |old| old.generation + 1);
                self.meters.changed.increment(1);
                self.meters.keys.set(set.len() as f64);
                let (issuer, keys) = (&self.settings.name, set.len());
                tracing::info!(issuer, keys, "the keys of an issuer are new");
                Known { set: Arc::new(set), generation, content, fetched }
            }
        };
        self.meters.fetched.set(self.clock.now().as_millis() as f64 / 1000.0);
        self.known.store(Some(Arc::new(known)));
        Ok(())
    }

    fn end(&self, number: u64, result: Result<Vec<u8>, String>) {
        let taken = result.and_then(|document| self.take(&document));
        self.progress().has_succeeded = taken.is_ok();
        if let Err(error) = taken {
            if self.known.load().is_none() {
                self.known.store(self.before.clone());
            }
            self.meters.failed.increment(1);
            let issuer = &self.settings.name;
            let source = match &self.settings.keys {
                KeySource::File(path) => path.display().to_string(),
                KeySource::Url(url) => url.uri.to_string(),
            };
            match self.known() {
                Some(_) => {
                    tracing::warn!(
                        issuer,
                        source,
                        error,
                        "no newer keys: the old ones still count"
                    );
                }
                None => tracing::error!(issuer, source, error, "no keys: its tokens get 503"),
            }
        }
        self.ended.send_modify(|ended| *ended = number.max(*ended));
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fetch that is under way. Its end is noticed also if it panics.
struct Fetching {
    keys: Arc<Keys>,
    number: u64,
    result: Option<Result<Vec<u8>, String>>,
}

impl Fetching {
    fn end(mut self, result: Result<Vec<u8>, String>) {
        self.result = Some(result);
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        let result = self.result.take().unwrap_or_else(|| Err("it was broken off".to_owned()));
        self.keys.end(self.number, result);
    }
}
