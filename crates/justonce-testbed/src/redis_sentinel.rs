//! A private Redis with replicas and sentinels.

use std::path::Path;

use super::process::until;
use super::redis::new_directory;
use super::{Certificate, RedisServer, ServerError};

/// The name by which the sentinels know the primary.
const NAME: &str = "main";
/// After how many milliseconds without an answer the sentinels replace a primary.
const DOWN_AFTER_MILLIS: u32 = 500;

/// A primary, its replicas and their sentinels, each a private process.
///
/// ```no_run
/// use justonce_testbed::RedisSentinel;
///
/// # fn main() -> Result<(), justonce_testbed::ServerError> {
/// let group = RedisSentinel::start(1, 3)?;
/// let first = group.primary()?;
/// first.kill();
/// let second = group.primary_other_than(first)?;
/// assert_ne!(first.port(), second.port());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisSentinel {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
    tls: bool,
}

impl RedisSentinel {
    /// Starts a primary, replicas, and sentinels with a majority as the quorum. Returns once the
    /// replicas are in sync and the sentinels know them.
    ///
    /// # Errors
    ///
    /// If one of them does not start.
    pub fn start(replicas: usize, sentinels: usize) -> Result<Self, ServerError> {
        Self::start_as(None, replicas, sentinels)
    }

    /// Like [`start`](Self::start), with TLS only.
    ///
    /// # Errors
    ///
    /// If one of them does not start.
    pub fn start_tls(
        certificate: &Certificate,
        replicas: usize,
        sentinels: usize,
    ) -> Result<Self, ServerError> {
        Self::start_as(Some(certificate), replicas, sentinels)
    }

    fn start_as(
        certificate: Option<&Certificate>,
        replicas: usize,
        sentinels: usize,
    ) -> Result<Self, ServerError> {
        let first = RedisServer::start_as(certificate, SERVER)?;
        let primary = first.port();
        let mut servers = vec![first];
        for _ in 0..replicas {
            let of = format!("127.0.0.1 {primary}");
            let mut options = SERVER.to_vec();
            options.extend(["--replicaof", of.as_str()]);
            servers.push(RedisServer::start_as(certificate, &options)?);
        }
        let quorum = sentinels / 2 + 1;
        let sentinels = (0..sentinels)
            .map(|_| {
                let directory = new_directory()?;
                RedisServer::start_in(directory, certificate, |at| sentinel(at, primary, quorum))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let group = Self { servers, sentinels, tls: certificate.is_some() };
        group.wait_until_in_step(replicas)?;
        Ok(group)
    }

    fn wait_until_in_step(&self, replicas: usize) -> Result<(), ServerError> {
        let others = self.sentinels.len() - 1;
        for server in &self.servers {
            let role = server.cli(&["ROLE"])?;
            if role.starts_with("slave") {
                until("a replica is not in step", || {
                    let state = server.info("replication", "master_link_status")?;
                    Ok((state == "up").then_some(()))
                })?;
            }
        }
        for sentinel in &self.sentinels {
            until("a sentinel does not know all others", || {
                let text = sentinel.cli(&["SENTINEL", "MASTER", NAME])?;
                let lines: Vec<&str> = text.lines().collect();
                let figure = |name: &str| {
                    let at = lines.iter().position(|line| *line == name)?;
                    lines.get(at + 1)?.parse::<usize>().ok()
                };
                let knows = figure("num-slaves") == Some(replicas)
                    && figure("num-other-sentinels") == Some(others);
                Ok(knows.then_some(()))
            })?;
        }
        Ok(())
    }

    /// The address of a store on this group.
    #[must_use]
    pub fn url(&self) -> String {
        let places: Vec<String> = self.sentinels.iter().map(RedisServer::place).collect();
        let scheme = if self.tls { "rediss-sentinel" } else { "redis-sentinel" };
        format!("{scheme}://{}/{NAME}", places.join(","))
    }

    /// The primary and the replicas.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The server that the sentinels call the primary.
    ///
    /// # Errors
    ///
    /// If no sentinel answers.
    pub fn primary(&self) -> Result<&RedisServer, ServerError> {
        until("the sentinels name no primary", || Ok(self.named()))
    }

    /// Waits until all running sentinels have replaced a primary, and its successor reports that it
    /// is one.
    ///
    /// # Errors
    ///
    /// If they do not.
    pub fn primary_other_than(&self, old: &RedisServer) -> Result<&RedisServer, ServerError> {
        until("the sentinels do not replace the primary", || {
            let mut named = self.sentinels.iter().filter_map(|sentinel| self.named_by(sentinel));
            let Some(server) = named.next() else {
                return Ok(None);
            };
            let agreed = named.all(|other| other.port() == server.port());
            let replaced = agreed && server.port() != old.port();
            Ok((replaced && server.cli(&["ROLE"])?.starts_with("master")).then_some(server))
        })
    }

    fn named(&self) -> Option<&RedisServer> {
        self.sentinels.iter().find_map(|sentinel| self.named_by(sentinel))
    }

    fn named_by(&self, sentinel: &RedisServer) -> Option<&RedisServer> {
        let place = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).ok()?;
        let port: u16 = place.lines().nth(1)?.parse().ok()?;
        self.servers.iter().find(|server| server.port() == port)
    }
}

/// Replicas sync at once. What a server has is in a file too: a primary that comes back empty, as
/// long as one sentinel believes in it, empties its replicas.
const SERVER: &[&str] =
    &["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--appendonly", "yes"];

/// Writes the configuration of a sentinel, and returns its arguments.
fn sentinel(directory: &Path, primary: u16, quorum: usize) -> Result<Vec<String>, ServerError> {
    let file = directory.join("sentinel.conf");
    let text = format!(
        "sentinel monitor {NAME} 127.0.0.1 {primary} {quorum}\n\
         sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MILLIS}\n\
         sentinel failover-timeout {NAME} 3000\n"
    );
    std::fs::write(&file, text)
        .map_err(|error| ServerError::new("cannot write sentinel.conf", &error))?;
    Ok(vec![file.to_string_lossy().into_owned(), "--sentinel".to_owned()])
}
