//! Where records are kept, and how.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Where records are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// In this process, until it ends: `memory:`.
    Memory,
    /// In the embedded store in this directory: `file:PATH`.
    File(PathBuf),
    /// In Redis: `redis://…`, `redis-sentinel://…` or `redis-cluster://…`; with TLS, `rediss` in
    /// place of `redis`.
    Redis(ServerUrl),
    /// In PostgreSQL: `postgres://…`.
    Postgres(ServerUrl),
    /// In PostgreSQL, with Redis in front of it for duplicates:
    /// `tiered:redis://…,postgres://…`.
    Tiered {
        /// What answers duplicates.
        redis: ServerUrl,
        /// What decides.
        postgres: ServerUrl,
    },
}

impl StoreUrl {
    /// Whether every call is a round trip over a network.
    #[must_use]
    pub const fn is_remote(&self) -> bool {
        matches!(self, Self::Redis(_) | Self::Postgres(_) | Self::Tiered { .. })
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Redis(url) | Self::Postgres(url) => url.fmt(f),
            Self::Tiered { redis, postgres } => write!(f, "tiered:{redis},{postgres}"),
        }
    }
}

/// The address of a server, in which there may be a password: it is shown without.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// An address.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The whole address, password included. Do not log it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        // What follows the query may be a password as well.
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        match rest.rsplit_once('@') {
            None => write!(f, "{scheme}://{rest}"),
            Some((user, server)) => match user.split_once(':') {
                Some((user, _)) => write!(f, "{scheme}://{user}:…@{server}"),
                None => write!(f, "{scheme}://{user}@{server}"),
            },
        }
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerUrl({self})")
    }
}

/// How stores are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// How long a call of a store over a network may take.
    pub timeout: Duration,
    /// For Redis.
    pub redis: RedisSettings,
    /// For PostgreSQL.
    pub postgres: PostgresSettings,
    /// Outcomes that are kept in this process, for stores over a network; nothing for none.
    pub near_cache: Option<NearCacheSettings>,
}

/// How Redis is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSettings {
    /// What all our keys begin with.
    pub prefix: String,
    /// Whose certificates servers must have, with TLS; nothing for whom the system trusts.
    pub ca: Option<PathBuf>,
    /// How many replicas must have a change before it counts; 0 for none.
    pub wait_replicas: usize,
    /// How long they may take.
    pub wait_timeout: Duration,
}

/// How PostgreSQL is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresSettings {
    /// The schema that holds our tables.
    pub schema: String,
    /// The most connections at once.
    pub connections: usize,
    /// Whether missing tables are made at the start.
    pub migrate: bool,
}

/// How outcomes are kept in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearCacheSettings {
    /// How many bytes.
    pub bytes: usize,
    /// How long.
    pub age: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_never_shown() {
        let shown = |url: &str| ServerUrl::new(url).to_string();
        assert_eq!(shown("redis://127.0.0.1:6379/0"), "redis://127.0.0.1:6379/0");
        assert_eq!(shown("postgres://ann:s3cr3t@db/jo"), "postgres://ann:…@db/jo");
        assert_eq!(shown("postgres://ann:p@ss:w@db/jo"), "postgres://ann:…@db/jo");
        assert_eq!(shown("redis://:s3cr3t@db"), "redis://:…@db");
        assert_eq!(shown("postgres://ann@db/jo?password=s3cr3t"), "postgres://ann@db/jo");
        let url = ServerUrl::new("postgres://ann:s3cr3t@db/jo");
        assert!(!format!("{url:?}").contains("s3cr3t"));
    }
}
