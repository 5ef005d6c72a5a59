//! Asking all servers, again and again, whether they can keep the promise.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use justonce_core::StoreResult;
use redis::ConnectionInfo;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::address::{Address, Template};
use crate::error::Trouble;
use crate::fitness::{Fitness, Info};
use crate::link::{Link, Target};
use crate::sentinel::group_of;
use crate::slots::members;

/// How long a server has to say how it is.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// The task that asks all servers again and again. It ends with this handle.
pub(crate) struct Checks {
    servers: Arc<Servers>,
    every: Duration,
    task: Mutex<JoinHandle<()>>,
}

impl Checks {
    pub(crate) fn start(servers: Arc<Servers>, every: Duration) -> Self {
        let task = Mutex::new(tokio::spawn(Arc::clone(&servers).ask_again(every)));
        Self { servers, every, task }
    }

    /// Goes on where the runtime has ended that asked until now.
    pub(crate) fn go_on(&self) {
        let mut task = lock(&self.task);
        if task.is_finished() {
            *task = tokio::spawn(Arc::clone(&self.servers).ask_again(self.every));
        }
    }

    /// Asks all servers now.
    pub(crate) async fn check(&self) -> StoreResult<()> {
        self.servers.check().await;
        self.servers.fitness.ensure()
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        lock(&self.task).abort();
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checks").field("fitness", &self.servers.fitness).finish_non_exhaustive()
    }
}

/// All servers that have records or may get them: primaries, and replicas that may take over.
pub(crate) struct Servers {
    address: Address,
    fitness: Arc<Fitness>,
    /// Connections of their own: a check neither waits for steps nor holds them up.
    links: Mutex<HashMap<String, Arc<Link>>>,
    /// Who was there the last time, for when nobody can say who is.
    known: Mutex<Vec<Server>>,
    /// Those that could not keep the promise when they were last asked.
    unfit: Mutex<HashSet<String>>,
    /// How many keys each had evicted, and in which life.
    evicted: Mutex<HashMap<String, (String, u64)>>,
}

/// A server, and whether it has records now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) place: String,
    pub(crate) is_primary: bool,
}

impl Servers {
    pub(crate) fn new(address: Address, fitness: Arc<Fitness>) -> Self {
        let (links, known, unfit, evicted) = Default::default();
        Self { address, fitness, links, known, unfit, evicted }
    }

    async fn ask_again(self: Arc<Self>, every: Duration) {
        loop {
            sleep(every).await;
            self.check().await;
        }
    }

    /// Asks every server. One that cannot keep the promise refuses all steps at once; they are
    /// accepted again when every primary, and every server that was unfit, has said that it is fit
    /// or is not there any more. Another replica that does not answer is asked when it has become
    /// a primary: nothing is sent to it before.
    pub(crate) async fn check(&self) {
        let mut is_fit = true;
        let servers = self.servers().await;
        let is_there = |place: &String| servers.iter().any(|server| server.place == *place);
        lock(&self.unfit).retain(is_there);
        let mut asked: FuturesUnordered<_> = servers
            .iter()
            .map(|server| async move { (server, self.ask(&server.place).await) })
            .collect();
        while let Some((server, said)) = asked.next().await {
            match said {
                Ok(info) => {
                    let judged = self.fitness.judge(&server.place, &info);
                    match judged {
                        Ok(()) => lock(&self.unfit).remove(&server.place),
                        Err(_) => lock(&self.unfit).insert(server.place.clone()),
                    };
                    self.count_evicted(&server.place, &info);
                }
                Err(_) => is_fit &= !server.is_primary,
            }
        }
        if is_fit && lock(&self.unfit).is_empty() && !servers.is_empty() {
            self.fitness.accept();
        }
    }

    async fn ask(&self, place: &str) -> Result<Info, Trouble> {
        let live = self.link(place).map_err(Trouble::Final)?.live().await;
        let live = live.map_err(Trouble::Final)?;
        live.send(&redis::cmd("INFO")).await.map(|value| Info::of(&value))
    }

    /// The policy may have been another between two checks: what was evicted then is gone.
    fn count_evicted(&self, place: &str, info: &Info) {
        let life = info.get("run_id").unwrap_or_default().to_owned();
        let count = info.get("evicted_keys").and_then(|count| count.parse().ok()).unwrap_or(0);
        let before = lock(&self.evicted).insert(place.to_owned(), (life.clone(), count));
        if let Some((same, before)) = before
            && same == life
            && count > before
        {
            let keys = count - before;
            tracing::error!(
                server = place,
                keys,
                "the server has evicted keys: operations whose records were among them run again"
            );
        }
    }

    /// Who is there now; who was there the last time, if nobody says.
    async fn servers(&self) -> Vec<Server> {
        let found = match &self.address {
            Address::Single(info) => {
                vec![Server { place: info.addr().to_string(), is_primary: true }]
            }
            Address::Sentinel { sentinels, name, .. } => self.group(sentinels, name).await,
            Address::Cluster { seeds, .. } => self.members(seeds).await,
        };
        let mut known = lock(&self.known);
        if !found.is_empty() {
            let stays = |place: &String| found.iter().any(|server| server.place == *place);
            lock(&self.evicted).retain(|place, _| stays(place));
            lock(&self.links).retain(|place, _| stays(place) || self.is_named(place));
            *known = found;
        }
        known.clone()
    }

    /// Whether the address itself names a server.
    fn is_named(&self, place: &str) -> bool {
        let named = match &self.address {
            Address::Single(_) => return true,
            Address::Sentinel { sentinels, .. } => sentinels,
            Address::Cluster { seeds, .. } => seeds,
        };
        named.iter().any(|info| info.addr().to_string() == place)
    }

    /// The primary and the replicas, by the word of the first sentinel that answers.
    async fn group(&self, sentinels: &[ConnectionInfo], name: &str) -> Vec<Server> {
        let command = |what: &str| redis::cmd("SENTINEL").arg(what).arg(name).to_owned();
        let mut both = redis::pipe();
        both.add_command(command("GET-MASTER-ADDR-BY-NAME"));
        both.add_command(command("REPLICAS"));
        for sentinel in sentinels {
            let link = self.link_to(&sentinel.addr().to_string(), || sentinel.clone());
            let Ok(live) = link.live().await else { continue };
            let found = live.send_all(&both).await.map(|replies| group_of(&replies));
            match found {
                Ok(found) if !found.is_empty() => return found,
                _ => {}
            }
        }
        Vec::new()
    }

    /// All nodes that serve a slot, by the word of the first node that answers.
    async fn members(&self, seeds: &[ConnectionInfo]) -> Vec<Server> {
        let known = lock(&self.known).clone();
        let mut links: Vec<_> = known
            .iter()
            .filter_map(|server| Some((server.place.clone(), self.link(&server.place).ok()?)))
            .collect();
        links.extend(seeds.iter().map(|seed| {
            let place = seed.addr().to_string();
            let link = self.link_to(&place, || seed.clone());
            (place, link)
        }));
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        for (place, link) in links {
            let Ok(live) = link.live().await else { continue };
            let host = place.rsplit_once(':').map_or(place.as_str(), |(host, _)| host);
            match live.send(&command).await.map(|reply| members(&reply, host)) {
                Ok(found) if !found.is_empty() => return found,
                _ => {}
            }
        }
        Vec::new()
    }

    fn link(&self, place: &str) -> StoreResult<Arc<Link>> {
        let template: &Template = match &self.address {
            Address::Single(info) => return Ok(self.link_to(place, || info.clone())),
            Address::Sentinel { primary, .. } => primary,
            Address::Cluster { node, .. } => node,
        };
        let info = template.at(place)?;
        Ok(self.link_to(place, || info))
    }

    fn link_to(&self, place: &str, info: impl FnOnce() -> ConnectionInfo) -> Arc<Link> {
        let mut links = lock(&self.links);
        let link = links.entry(place.to_owned()).or_insert_with(|| {
            Arc::new(Link::new(Target::Server(Box::new(info())), REPLY_TIMEOUT, None))
        });
        Arc::clone(link)
    }
}

/// A panic elsewhere does not matter: these hold what the next check replaces.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
