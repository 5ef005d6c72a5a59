//! Checks all servers periodically.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use justonce_core::StoreResult;
use justonce_core::store::PerRuntime;
use redis::ConnectionInfo;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::address::Address;
use crate::cluster::host;
use crate::connection::{Connector, Target};
use crate::discovery::{Server, members, sentinel_group};
use crate::error::CommandError;
use crate::lock::lock;
use crate::requirements::{Info, Requirements};

/// The time limit for a server's reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// How many heartbeats of the task may be missing before steps check by themselves.
const MISSED_BEATS: u32 = 3;
/// More time for it, for a machine that is busy.
const BEAT_SLACK: Duration = Duration::from_secs(1);

/// The task that checks all servers. It ends with this handle.
pub(crate) struct Monitor {
    servers: Arc<Servers>,
    every: Duration,
    task: Mutex<JoinHandle<()>>,
    /// Held while a task is started. Each runtime has one: it may be blocked meanwhile.
    starting: PerRuntime<tokio::sync::Mutex<()>>,
}

/// When the task was last driven.
struct Heartbeat {
    start: Instant,
    /// In milliseconds after the start.
    last: AtomicU64,
}

impl Heartbeat {
    fn new() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn beat(&self) {
        self.last.store(self.now(), Ordering::Release);
    }

    fn age(&self) -> Duration {
        Duration::from_millis(self.now().saturating_sub(self.last.load(Ordering::Acquire)))
    }
}

impl Monitor {
    pub(crate) fn start(servers: Arc<Servers>, every: Duration) -> Self {
        let task = Mutex::new(tokio::spawn(Arc::clone(&servers).run(every)));
        Self { servers, every, task, starting: PerRuntime::new() }
    }

    /// Starts the task again, on the runtime of the caller. What a server was changed to meanwhile
    /// is not known: the caller waits until all are checked.
    pub(crate) async fn restart(&self) {
        // One caller of a runtime at a time: those behind it find another task.
        let starting = self.starting.get(Default::default);
        let _turn = starting.lock().await;
        if self.is_driven() {
            return;
        }
        self.servers.check().await;
        // Another runtime may have been faster.
        if !self.is_driven() {
            self.servers.heartbeat.beat();
            let mut task = lock(&self.task);
            task.abort();
            *task = tokio::spawn(Arc::clone(&self.servers).run(self.every));
        }
    }

    /// Whether the task is driven: its runtime has neither ended, nor is it blocked.
    pub(crate) fn is_driven(&self) -> bool {
        let late = MISSED_BEATS * self.every + BEAT_SLACK;
        self.servers.heartbeat.age() < late && !lock(&self.task).is_finished()
    }

    /// Checks all servers now.
    pub(crate) async fn check(&self) -> StoreResult<()> {
        self.servers.check().await;
        self.servers.requirements.ensure()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        lock(&self.task).abort();
    }
}

/// All servers that have records or may get them: primaries, and replicas that may take over.
pub(crate) struct Servers {
    address: Address,
    requirements: Arc<Requirements>,
    /// Separate connections: a check neither waits for steps nor delays them.
    connectors: Mutex<HashMap<String, Arc<Connector>>>,
    /// The servers found last, for when they cannot be listed.
    known: Mutex<Vec<Server>>,
    /// The servers that violated the requirements when they were last checked.
    violating: Mutex<HashSet<String>>,
    /// The `run_id` of each server, and the keys that it had evicted.
    evicted: Mutex<HashMap<String, (String, u64)>>,
    heartbeat: Heartbeat,
}

impl Servers {
    pub(crate) fn new(address: Address, requirements: Arc<Requirements>) -> Self {
        let (connectors, known, violating, evicted) = Default::default();
        let heartbeat = Heartbeat::new();
        Self { address, requirements, connectors, known, violating, evicted, heartbeat }
    }

    async fn run(self: Arc<Self>, every: Duration) {
        let checks = async {
            loop {
                sleep(every).await;
                self.check().await;
            }
        };
        // A check of servers that do not answer takes longer than the pause between two.
        let beats = async {
            loop {
                self.heartbeat.beat();
                sleep(every).await;
            }
        };
        tokio::join!(checks, beats);
    }

    /// Checks every server. A violation refuses all steps at once. Steps are accepted again when
    /// every primary, and every server with a violation, was checked successfully or is gone.
    /// Replicas that do not answer are checked when they become primaries, before anything is sent
    /// to them.
    pub(crate) async fn check(&self) {
        let mut is_met = true;
        let servers = self.servers().await;
        let is_there = |address: &String| servers.iter().any(|server| server.address == *address);
        lock(&self.violating).retain(is_there);
        let mut replies: FuturesUnordered<_> = servers
            .iter()
            .map(|server| async move { (server, self.info(&server.address).await) })
            .collect();
        while let Some((server, reply)) = replies.next().await {
            let Server { address, is_primary } = server;
            match reply {
                Ok(info) => {
                    match self.requirements.check(address, &info) {
                        Ok(()) => lock(&self.violating).remove(address),
                        Err(_) => lock(&self.violating).insert(address.clone()),
                    };
                    self.count_evicted(address, &info);
                }
                Err(_) => is_met &= !is_primary,
            }
        }
        if is_met && lock(&self.violating).is_empty() && !servers.is_empty() {
            self.requirements.accept();
        }
    }

    async fn info(&self, address: &str) -> Result<Info, CommandError> {
        let connector = self.connector(address).map_err(CommandError::Final)?;
        let connection = connector.connection().await.map_err(CommandError::Final)?;
        connection.send(&redis::cmd("INFO")).await.map(|value| Info::of(&value))
    }

    /// Logs keys that were evicted between two checks, while the policy was another one.
    fn count_evicted(&self, address: &str, info: &Info) {
        let run = info.get("run_id").unwrap_or_default().to_owned();
        let count = info.get("evicted_keys").and_then(|count| count.parse().ok()).unwrap_or(0);
        let before = lock(&self.evicted).insert(address.to_owned(), (run.clone(), count));
        if let Some((same, before)) = before
            && same == run
            && count > before
        {
            let keys = count - before;
            tracing::error!(
                server = address,
                keys,
                "the server has evicted keys: operations whose records were among them run again"
            );
        }
    }

    /// The servers that exist now, or those found last.
    async fn servers(&self) -> Vec<Server> {
        let found = match &self.address {
            Address::Single(info) => {
                vec![Server { address: info.addr().to_string(), is_primary: true }]
            }
            Address::Sentinel { sentinels, name, .. } => self.group(sentinels, name).await,
            Address::Cluster { seeds, .. } => self.members(seeds).await,
        };
        let mut known = lock(&self.known);
        if !found.is_empty() {
            let stays = |address: &String| found.iter().any(|server| server.address == *address);
            lock(&self.evicted).retain(|address, _| stays(address));
            lock(&self.connectors).retain(|address, _| stays(address) || self.is_named(address));
            *known = found;
        }
        known.clone()
    }

    /// Whether the address of the store names a server.
    fn is_named(&self, address: &str) -> bool {
        let named = match &self.address {
            Address::Single(_) => return true,
            Address::Sentinel { sentinels, .. } => sentinels,
            Address::Cluster { seeds, .. } => seeds,
        };
        named.iter().any(|info| info.addr().to_string() == address)
    }

    /// The primary and the replicas, from the first sentinel that answers.
    async fn group(&self, sentinels: &[ConnectionInfo], name: &str) -> Vec<Server> {
        let mut both = redis::pipe();
        both.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name);
        both.cmd("SENTINEL").arg("REPLICAS").arg(name);
        for sentinel in sentinels {
            let connector = self.connector_to(&sentinel.addr().to_string(), || sentinel.clone());
            let Ok(connection) = connector.connection().await else { continue };
            let Ok(replies) = connection.send_all(&both).await else { continue };
            let found = sentinel_group(&replies);
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    /// All nodes that serve a slot, from the first node that answers.
    async fn members(&self, seeds: &[ConnectionInfo]) -> Vec<Server> {
        let known = lock(&self.known).clone();
        let known = known.into_iter().filter_map(|server| {
            let connector = self.connector(&server.address).ok()?;
            Some((server.address, connector))
        });
        let seeds = seeds.iter().map(|seed| {
            let address = seed.addr().to_string();
            let connector = self.connector_to(&address, || seed.clone());
            (address, connector)
        });
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        for (address, connector) in known.chain(seeds).collect::<Vec<_>>() {
            let Ok(connection) = connector.connection().await else { continue };
            let Ok(reply) = connection.send(&command).await else { continue };
            let found = members(&reply, host(&address));
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    fn connector(&self, address: &str) -> StoreResult<Arc<Connector>> {
        let template = match &self.address {
            Address::Single(info) => return Ok(self.connector_to(address, || info.clone())),
            Address::Sentinel { primary, .. } => primary,
            Address::Cluster { node, .. } => node,
        };
        let info = template.at(address)?;
        Ok(self.connector_to(address, || info))
    }

    fn connector_to(&self, address: &str, info: impl FnOnce() -> ConnectionInfo) -> Arc<Connector> {
        let mut connectors = lock(&self.connectors);
        let connector = connectors.entry(address.to_owned()).or_insert_with(|| {
            Arc::new(Connector::new(Target::Server(Box::new(info())), REPLY_TIMEOUT, None))
        });
        Arc::clone(connector)
    }
}
