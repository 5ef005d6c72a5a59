//! How stores are used.

use std::path::PathBuf;
use std::time::Duration;

use crate::declare::settings;
use crate::invalid::{Invalid, Read};
use crate::kind::{custom, flag, full_text, number, optional, path, repeated, size, timeout};
use crate::tree::Node;

/// How stores are used.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreSettings {
    /// How long a call of a store over a network may take: `timeouts.store`.
    pub timeout: Duration,
    /// For the embedded store.
    pub embedded: EmbeddedSettings,
    /// For Redis.
    pub redis: RedisSettings,
    /// For PostgreSQL.
    pub postgres: PostgresSettings,
    /// Outcomes that are kept in this process, for stores over a network; nothing for none.
    pub near_cache: Option<NearCacheSettings>,
}

settings! {
    /// What the embedded store keeps in memory beside its caches. At a bound, new operations are
    /// refused.
    #[derive(Copy)]
    pub struct EmbeddedSettings from EmbeddedLayer {
        /// The most operations that are in progress or unknown.
        unsettled_records: usize = number(1..=100_000_000), default "1000000", example "50000";
        /// How much memory they may take, with their checkpoints.
        unsettled_bytes: usize = size(1 << 20..=1 << 40), default "1GiB", example "128MiB";
        /// The most writes that wait for the disk.
        queued_writes: usize = number(1..=100_000_000), default "100000", example "10000";
        /// How many bytes of them.
        queued_bytes: usize = size(1 << 20..=1 << 40), default "256MiB", example "32MiB";
    }
}

settings! {
    /// How Redis is used.
    pub struct RedisSettings from RedisLayer {
        /// What all keys in Redis begin with.
        prefix: String = custom(name), default "justonce", example "shop";
        /// Certificates (PEM) that `rediss…://…` servers are trusted by; without it, the system's.
        ca: Option<PathBuf> = optional(custom(path)), example "/etc/justonce/redis-ca.pem";
        /// How many replicas must have a change before it counts.
        wait_replicas: usize = number(0..=16), default "0", example "1";
        /// How long they may take.
        wait_timeout: Duration = timeout(), default "1s", example "200ms";
    }
}

settings! {
    /// How PostgreSQL is used.
    pub struct PostgresSettings from PostgresLayer {
        /// The schema that holds the tables.
        schema: String = custom(name), default "justonce", example "once";
        /// The most connections at once for steps; up to nine more read, wait for locked records
        /// and listen.
        connections: usize = number(1..=1000), default "16", example "32";
        /// Whether missing tables are made at the start; see `justonce migrate`.
        migrate: bool = flag(), default "true", example "false";
    }
}

settings! {
    /// How outcomes are kept in this process.
    #[derive(Copy)]
    pub struct NearCacheSettings from NearCacheLayer {
        /// Whether outcomes of a store over a network are kept in this process too.
        enabled: bool = flag(), default "true", example "false";
        /// How many bytes of them.
        bytes: usize = size(1 << 16..=1 << 36), default "32MiB", example "256MiB";
        /// How long each, at most, and never longer than its retention.
        age: Duration = timeout(), default "5s", example "60s";
    }
}

/// A name that needs no quotes anywhere.
fn name(node: &Node) -> Read<String> {
    const LONGEST: usize = 40;
    let text = full_text(node)?;
    let fits = text.len() <= LONGEST
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if fits {
        return Ok(text);
    }
    let message = format!("expected up to {LONGEST} small letters, digits and `_`");
    Err(Invalid::at(node, format!("{message}, found {}", repeated(&text))))
}
