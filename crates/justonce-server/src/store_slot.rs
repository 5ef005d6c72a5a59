//! The embedded store of this process, which another process may take over: its directory has one
//! owner.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwapOption;
use justonce::embedded::backup::Backups;
use justonce::embedded::{Bounds, OpenError};
use justonce::http::metered;
use justonce::store::{
    Health, ListQuery, Maintenance, Observed, Page, Records, Stats, Stored, SweepReport,
};
use justonce::{
    Answer, ClaimEnd, EmbeddedStore, Fence, RecordId, Step, StoreError, StoreErrorKind, StoreResult,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

/// The embedded store's block cache. It is small: the system caches the same files.
const CACHE_BYTES: u64 = 48 * 1024 * 1024;
/// The embedded store's cache of outcomes.
const HOT_BYTES: u64 = 32 * 1024 * 1024;
/// How often it is looked whether the directory, or the store, is free.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(2);

/// The embedded store, or its place while another process tries to take it over. Calls wait then.
/// Clones share it.
#[derive(Clone)]
pub(crate) struct StoreSlot(Arc<Slot>);

struct Slot {
    path: PathBuf,
    bounds: Bounds,
    store: ArcSwapOption<Opened>,
    /// Whether the store is here, is away and may come back, or will not come back.
    state: watch::Sender<State>,
}

struct Opened {
    store: Observed<EmbeddedStore>,
    backups: Backups,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Here,
    Away,
    Gone,
}

/// Opens the store in a directory.
///
/// # Errors
///
/// If it cannot be opened.
pub(crate) fn embedded(path: &Path, bounds: Bounds) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::builder(path).cache_bytes(CACHE_BYTES).hot_bytes(HOT_BYTES).bounds(bounds).open()
}

impl Opened {
    fn open(path: &Path, bounds: Bounds) -> Result<Self, OpenError> {
        let store = embedded(path, bounds)?;
        let backups = store.backups();
        Ok(Self { store: metered(store), backups })
    }
}

impl StoreSlot {
    /// Opens the store in a directory. If another process has it, that one may take so long to
    /// leave it.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub(crate) async fn open(path: &Path, bounds: Bounds, wait: Duration) -> anyhow::Result<Self> {
        let opened = patiently(path, bounds, wait).await?;
        Ok(Self(Arc::new(Slot {
            path: path.to_owned(),
            bounds,
            store: ArcSwapOption::from_pointee(opened),
            state: watch::Sender::new(State::Here),
        })))
    }

    /// What makes backups of it; nothing while it is away.
    pub(crate) fn backups(&self) -> Option<Backups> {
        self.0.store.load().as_ref().map(|opened| opened.backups.clone())
    }

    /// Closes the store and frees its directory for another process, once no call is under way.
    /// Calls that come from here on wait.
    ///
    /// # Errors
    ///
    /// If calls are under way for too long. The store is open as before then.
    pub(crate) async fn release(&self, deadline: Instant) -> anyhow::Result<()> {
        self.0.state.send_replace(State::Away);
        let Some(mut opened) = self.0.store.swap(None) else { return Ok(()) };
        let opened = loop {
            match Arc::try_unwrap(opened) {
                Ok(alone) => break alone,
                Err(shared) if Instant::now() >= deadline => {
                    self.0.store.store(Some(shared));
                    self.0.state.send_replace(State::Here);
                    anyhow::bail!("calls of the store did not end in time");
                }
                Err(shared) => opened = shared,
            }
            sleep(LOOK_AGAIN_AFTER).await;
        };
        // Closing waits for the disk.
        tokio::task::spawn_blocking(move || drop(opened)).await.context("closing the store failed")
    }

    /// Opens the store again: no other process has taken it over.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub(crate) async fn reopen(&self, wait: Duration) -> anyhow::Result<()> {
        let opened = patiently(&self.0.path, self.0.bounds, wait).await?;
        self.0.store.store(Some(Arc::new(opened)));
        self.0.state.send_replace(State::Here);
        Ok(())
    }

    /// Another process has the store: calls that wait, and those to come, fail.
    pub(crate) fn give_up(&self) {
        self.0.state.send_replace(State::Gone);
    }

    async fn store(&self) -> StoreResult<Arc<Opened>> {
        loop {
            if let Some(opened) = self.0.store.load_full() {
                return Ok(opened);
            }
            let mut state = self.0.state.subscribe();
            let state = state.wait_for(|state| *state != State::Away).await.map(|state| *state);
            if !matches!(state, Ok(State::Here)) {
                let why = "another process has taken the store over";
                return Err(StoreError::not_applied(StoreErrorKind::Unavailable, why));
            }
        }
    }
}

/// What is said before the reason why a store cannot be opened.
pub(crate) fn unopened(path: &Path) -> String {
    format!("cannot open the store in {}", path.display())
}

/// Opens a store. If another process has it, that one may take so long to leave it.
async fn patiently(path: &Path, bounds: Bounds, wait: Duration) -> anyhow::Result<Opened> {
    let deadline = Instant::now() + wait;
    loop {
        let at = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || Opened::open(&at, bounds)).await?;
        match opened {
            Err(OpenError::InUse { .. }) if Instant::now() < deadline => {
                // It is slept no longer than there is time.
                let _ = timeout_at(deadline, sleep(LOOK_AGAIN_AFTER)).await;
            }
            opened => return opened.with_context(|| unopened(path)),
        }
    }
}

impl Records for StoreSlot {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        self.store().await?.store.apply(step).await
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        self.store().await?.store.get(id).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.store().await?.store.settled(id, fence).await
    }
}

impl Maintenance for StoreSlot {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.store().await?.store.list(query).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.store().await?.store.stats().await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.store().await?.store.sweep(limit).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.store().await?.store.ready().await
    }

    async fn health(&self) -> StoreResult<Health> {
        self.store().await?.store.health().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    async fn opened(path: &Path) -> StoreSlot {
        StoreSlot::open(path, Bounds::default(), NOW).await.unwrap()
    }

    #[tokio::test]
    async fn a_released_store_can_be_opened_elsewhere_and_calls_wait_for_its_return() {
        let directory = tempfile::tempdir().unwrap();
        let slot = opened(directory.path()).await;
        assert!(StoreSlot::open(directory.path(), Bounds::default(), NOW).await.is_err());
        slot.release(Instant::now()).await.unwrap();
        assert!(slot.backups().is_none());
        let other = opened(directory.path()).await;
        let waiting = tokio::spawn({
            let slot = slot.clone();
            async move { slot.ready().await }
        });
        assert!(slot.reopen(NOW).await.is_err(), "another has it");
        assert!(!waiting.is_finished());
        drop(other);
        slot.reopen(Duration::from_secs(30)).await.unwrap();
        waiting.await.unwrap().unwrap();
        assert!(slot.backups().is_some());
    }

    #[tokio::test]
    async fn what_waits_is_told_when_the_store_does_not_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let slot = opened(directory.path()).await;
        slot.release(Instant::now()).await.unwrap();
        let ready = slot.ready();
        slot.give_up();
        let error = ready.await.unwrap_err();
        assert!(error.to_string().contains("another process"), "{error}");
    }

    #[tokio::test]
    async fn calls_under_way_keep_the_store() {
        let directory = tempfile::tempdir().unwrap();
        let slot = opened(directory.path()).await;
        let call = slot.store().await.unwrap();
        assert!(slot.release(Instant::now()).await.is_err());
        slot.ready().await.unwrap();
        drop(call);
        slot.release(Instant::now()).await.unwrap();
    }
}
