//! Opens the store of the settings.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use justonce::embedded::Bounds;
use justonce::engine::Limits as EngineLimits;
use justonce::http::metered;
use justonce::memory::MemoryStore;
use justonce::postgres::PostgresStore;
use justonce::redis::{RedisOutcomes, RedisStore};
use justonce::store::{
    CacheEvent, Cached, Maintenance, NearCache, Records, Retry, RetryPolicy, SharedStore, Timeout,
};
use justonce::{Engine, Entropy, StoreError, StoreResult, SystemClock};
use metrics::{Counter, counter};

use crate::background::CountBackground;
use crate::config::{
    EmbeddedSettings, NearCacheSettings, ServerUrl, Settings, StoreSettings, StoreUrl,
};
use crate::metrics::CACHE_LOOKUPS;
use crate::store_slot::StoreSlot;

/// An engine on the store of the settings, and the store itself if it is the embedded one. If
/// another process has that, it may take so long to leave it.
///
/// # Errors
///
/// If the store cannot be opened.
pub(crate) async fn engine(
    settings: &Settings,
    wait: Duration,
) -> anyhow::Result<(Engine, Option<StoreSlot>)> {
    let mut embedded = None;
    let store = match &settings.store {
        StoreUrl::File(path) => {
            let slot = StoreSlot::open(path, bounds(settings.stores.embedded), wait).await?;
            embedded = Some(slot.clone());
            Arc::new(slot)
        }
        other => open(other, &settings.stores).await?,
    };
    let engine = Engine::builder_shared(store).limits(limits(settings));
    let observer = Arc::new(CountBackground);
    let engine = engine.worker_observer(observer.clone()).not_stored_observer(observer).build();
    Ok((engine, embedded))
}

fn limits(settings: &Settings) -> EngineLimits {
    EngineLimits {
        max_concurrent: settings.limits.concurrent,
        max_waiters: settings.limits.waiters,
        // Storing an outcome may take no longer than any other step.
        settle_timeout: settings.stores.timeout,
        ..EngineLimits::default()
    }
}

async fn open(url: &StoreUrl, settings: &StoreSettings) -> anyhow::Result<SharedStore> {
    Ok(match url {
        StoreUrl::Memory => Arc::new(metered(MemoryStore::new(SystemClock::new()))),
        StoreUrl::File(path) => {
            Arc::new(StoreSlot::open(path, bounds(settings.embedded), Duration::ZERO).await?)
        }
        StoreUrl::Redis(url) => near(remote(redis(url, settings).await?, settings), settings),
        StoreUrl::Postgres(url) => near(remote(postgres(url, settings).await?, settings), settings),
        StoreUrl::Tiered { redis, postgres: primary } => {
            let primary = remote(postgres(primary, settings).await?, settings);
            let outcomes = outcomes(redis, settings)
                .with_context(|| format!("cannot use the cache in {redis}"))?;
            near(Cached::new(primary, outcomes).observer(counted("redis")), settings)
        }
    })
}

const fn bounds(settings: EmbeddedSettings) -> Bounds {
    Bounds {
        unsettled_records: settings.unsettled_records as u64,
        unsettled_bytes: settings.unsettled_bytes as u64,
        queued_writes: settings.queued_writes as u64,
        queued_bytes: settings.queued_bytes as u64,
    }
}

/// The cache in Redis. It connects in the background: the gateway starts without Redis too.
pub(crate) fn outcomes(url: &ServerUrl, settings: &StoreSettings) -> StoreResult<RedisOutcomes> {
    let mut builder = RedisOutcomes::builder(url.reveal()).prefix(&settings.redis.prefix);
    if let Some(ca) = &settings.redis.ca {
        builder = builder.ca_file(ca);
    }
    builder.build()
}

pub(crate) async fn redis(url: &ServerUrl, settings: &StoreSettings) -> anyhow::Result<RedisStore> {
    let redis = &settings.redis;
    let mut builder = RedisStore::builder(url.reveal()).prefix(&redis.prefix);
    if let Some(ca) = &redis.ca {
        builder = builder.ca_file(ca);
    }
    if redis.wait_replicas > 0 {
        let replicas = u32::try_from(redis.wait_replicas).unwrap_or(u32::MAX);
        builder = builder.wait_replicas(replicas, redis.wait_timeout);
    }
    builder.open().await.map_err(|error| unopened(url, &error))
}

async fn postgres(url: &ServerUrl, settings: &StoreSettings) -> anyhow::Result<PostgresStore> {
    let postgres = &settings.postgres;
    PostgresStore::builder(url.reveal())
        .schema(&postgres.schema)
        .connections(postgres.connections)
        .migrate(postgres.migrate)
        .open()
        .await
        .map_err(|error| unopened(url, &error))
}

/// Why a store cannot be opened.
fn unopened(url: &ServerUrl, error: &StoreError) -> anyhow::Error {
    anyhow!("cannot open the store in {url}: {}", with_causes(error))
}

/// An error and its causes, each once. It is an error of an opening: that no step was applied is
/// not worth saying.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text.replace(" (the step was not applied)", "")
}

/// Retries and a timeout for a store on a network. Each try is counted as a store operation.
fn remote<S: Records + Maintenance>(
    store: S,
    settings: &StoreSettings,
) -> impl Records + Maintenance + use<S> {
    let entropy = Arc::new(Entropy::from_system());
    Timeout::new(Retry::new(metered(store), RetryPolicy::default(), entropy), settings.timeout)
}

/// Adds the cache in this process, if the settings have one.
fn near(store: impl Records + Maintenance, settings: &StoreSettings) -> SharedStore {
    let Some(NearCacheSettings { bytes, age, .. }) = settings.near_cache else {
        return Arc::new(store);
    };
    let near = NearCache::builder().bytes(bytes as u64).age(age).build();
    Arc::new(Cached::new(store, near).observer(counted("near")))
}

/// Counts the lookups of a cache.
fn counted(cache: &'static str) -> impl Fn(CacheEvent<'_>) + Send + Sync + 'static {
    let count = |result: &'static str| -> Counter {
        counter!(CACHE_LOOKUPS.name, "cache" => cache, "result" => result)
    };
    let (hit, missed) = (count("hit"), count("miss"));
    let (skipped, failed) = (count("skipped"), count("failed"));
    move |event| match event {
        CacheEvent::Hit => hit.increment(1),
        CacheEvent::Missed => missed.increment(1),
        CacheEvent::Skipped => skipped.increment(1),
        CacheEvent::Failed(error) => {
            failed.increment(1);
            tracing::warn!(target: "justonce::store", cache, %error, "a cache failed");
        }
        _ => {}
    }
}
