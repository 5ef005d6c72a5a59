//! Opens the store that the settings name.

use std::error::Error;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use justonce::engine::Limits as EngineLimits;
use justonce::http::metered;
use justonce::memory::MemoryStore;
use justonce::postgres::PostgresStore;
use justonce::redis::{RedisOutcomes, RedisStore};
use justonce::store::{
    CacheEvent, Cached, Maintenance, NearCache, Records, Retry, RetryPolicy, SharedStore, Timeout,
};
use justonce::{EmbeddedStore, Engine, Entropy, StoreError, SystemClock};
use metrics::{Counter, counter};

use crate::config::{NearCacheSettings, ServerUrl, Settings, StoreSettings, StoreUrl};
use crate::metrics::CACHE_LOOKUPS;

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
pub(crate) async fn engine(settings: &Settings) -> anyhow::Result<Engine> {
    let store = open(&settings.store, &settings.stores).await?;
    Ok(Engine::builder_shared(store).limits(limits(settings)).build())
}

fn limits(settings: &Settings) -> EngineLimits {
    EngineLimits {
        max_concurrent: settings.limits.concurrent,
        max_waiters: settings.limits.waiters,
        // Who has an answer of the service waits no longer for the store than who has none.
        settle_timeout: settings.stores.timeout,
        ..EngineLimits::default()
    }
}

async fn open(url: &StoreUrl, settings: &StoreSettings) -> anyhow::Result<SharedStore> {
    Ok(match url {
        StoreUrl::Memory => Arc::new(metered(MemoryStore::new(SystemClock::new()))),
        StoreUrl::File(path) => {
            let store = EmbeddedStore::builder(path)
                .cache_bytes(CACHE_BYTES)
                .hot_bytes(HOT_BYTES)
                .open()
                .with_context(|| format!("cannot open the store in {}", path.display()))?;
            Arc::new(metered(store))
        }
        StoreUrl::Redis(url) => near(remote(redis(url, settings).await?, settings), settings),
        StoreUrl::Postgres(url) => near(remote(postgres(url, settings).await?, settings), settings),
        StoreUrl::Tiered { redis, postgres: truth } => {
            let truth = remote(postgres(truth, settings).await?, settings);
            // It connects by itself: a Redis that is away keeps nobody from starting.
            let mut outcomes =
                RedisOutcomes::builder(redis.reveal()).prefix(&settings.redis.prefix);
            if let Some(ca) = &settings.redis.ca {
                outcomes = outcomes.ca_file(ca);
            }
            let outcomes =
                outcomes.build().with_context(|| format!("cannot use the cache in {redis}"))?;
            near(Cached::new(truth, outcomes).observer(watched("redis")), settings)
        }
    })
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

/// Why a store cannot be opened. That nothing was done yet goes without saying.
fn unopened(url: &ServerUrl, error: &StoreError) -> anyhow::Error {
    let told = told(error).replace(" (the step was not applied)", "");
    anyhow!("cannot open the store in {url}: {told}")
}

/// An error and its causes, each once.
pub(crate) fn told(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(why) = cause {
        let text = why.to_string();
        if !told.contains(&text) {
            told = format!("{told}: {text}");
        }
        cause = why.source();
    }
    told
}

/// What every store over a network gets: safe retries, and an end to waiting. Only what reaches
/// the server is counted as a store's operation.
fn remote<S: Records + Maintenance>(
    store: S,
    settings: &StoreSettings,
) -> impl Records + Maintenance + use<S> {
    let entropy = Arc::new(Entropy::from_system());
    let patient = Retry::new(metered(store), RetryPolicy::default(), entropy);
    Timeout::new(patient, settings.timeout)
}

/// Keeps settled outcomes in this process too, unless the settings say otherwise.
fn near(store: impl Records + Maintenance, settings: &StoreSettings) -> SharedStore {
    let Some(NearCacheSettings { bytes, age }) = settings.near_cache else {
        return Arc::new(store);
    };
    let near = NearCache::builder().bytes(bytes as u64).age(age).build();
    Arc::new(Cached::new(store, near).observer(watched("near")))
}

/// Counts what a cache does.
fn watched(cache: &'static str) -> impl Fn(CacheEvent<'_>) + Send + Sync + 'static {
    let count = |result: &'static str| -> Counter {
        counter!(CACHE_LOOKUPS, "cache" => cache, "result" => result)
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
    }
}
