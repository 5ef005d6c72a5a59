//! The stores that things happen to.

use justonce_testbed::{PostgresOptions, PostgresServer, RedisServer};

/// A private store.
pub(crate) enum Store {
    Redis(RedisServer),
    Postgres(PostgresServer),
    /// Redis in front of PostgreSQL.
    Tiered(RedisServer, PostgresServer),
}

/// What Redis acknowledges is on its disk.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

impl Store {
    pub(crate) fn redis() -> Self {
        Self::Redis(RedisServer::start_with(&DURABLE).unwrap())
    }

    pub(crate) fn postgres() -> Self {
        Self::Postgres(postgres())
    }

    pub(crate) fn tiered() -> Self {
        Self::Tiered(RedisServer::start().unwrap(), postgres())
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Postgres(server) => server.url(),
            Self::Tiered(redis, postgres) => format!("tiered:{},{}", redis.url(), postgres.url()),
        }
    }

    /// Kills what decides, as a crash would.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Redis(server) => server.kill(),
            Self::Postgres(server) | Self::Tiered(_, server) => server.stop_immediate().unwrap(),
        }
    }

    pub(crate) fn restart(&mut self) {
        match self {
            Self::Redis(server) => server.restart().unwrap(),
            Self::Postgres(server) | Self::Tiered(_, server) => server.restart().unwrap(),
        }
    }

    /// Stops what decides where it stands.
    pub(crate) fn pause(&self) {
        match self {
            Self::Redis(server) => server.pause().unwrap(),
            Self::Postgres(server) | Self::Tiered(_, server) => server.pause().unwrap(),
        }
    }

    pub(crate) fn resume(&self) {
        match self {
            Self::Redis(server) => server.resume().unwrap(),
            Self::Postgres(server) | Self::Tiered(_, server) => server.resume().unwrap(),
        }
    }

    /// Empties what only answers duplicates, so that what decides must answer.
    pub(crate) fn drop_cache(&self) {
        if let Self::Tiered(redis, _) = self {
            redis.cli(&["FLUSHALL"]).unwrap();
        }
    }
}

/// A kill of the processes loses nothing that was handed to the system, so nothing waits for disks.
fn postgres() -> PostgresServer {
    PostgresServer::start(PostgresOptions::default()).unwrap()
}
