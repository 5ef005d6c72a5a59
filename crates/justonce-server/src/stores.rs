//! Opens the store that the settings name.

use std::sync::Arc;

use anyhow::Context;
use justonce::engine::Limits as EngineLimits;
use justonce::http::metered;
use justonce::memory::MemoryStore;
use justonce::{EmbeddedStore, Engine, SystemClock};

use crate::config::{Limits, StoreUrl};

/// Blocks of the disk that the embedded store keeps in memory. The gateway's promise is a small
/// footprint; the system's own cache of files comes on top of it.
const CACHE_BYTES: u64 = 48 * 1024 * 1024;
/// Outcomes that it keeps in memory for replays.
const HOT_BYTES: u64 = 32 * 1024 * 1024;

/// An engine on the store that the settings name.
///
/// # Errors
///
/// If the store cannot be opened.
pub(crate) fn engine(store: &StoreUrl, limits: &Limits) -> anyhow::Result<Engine> {
    let limits = EngineLimits {
        max_concurrent: limits.concurrent,
        max_waiters: limits.waiters,
        ..EngineLimits::default()
    };
    let store: justonce::store::SharedStore = match store {
        StoreUrl::Memory => Arc::new(metered(MemoryStore::new(SystemClock::new()))),
        StoreUrl::File(path) => {
            let store = EmbeddedStore::builder(path)
                .cache_bytes(CACHE_BYTES)
                .hot_bytes(HOT_BYTES)
                .open()
                .with_context(|| format!("cannot open the store in {}", path.display()))?;
            Arc::new(metered(store))
        }
    };
    Ok(Engine::builder_shared(store).limits(limits).build())
}
