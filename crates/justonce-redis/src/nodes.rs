//! Sending commands to the server that has the bucket, and what to do when that changes.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use redis::{Client, Cmd, Value};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::address::Address;
use crate::cluster::{Cluster, unserved};
use crate::error::Trouble;
use crate::fitness::Fitness;
use crate::layout::{Key, Layout};
use crate::link::{Live, Target};
use crate::node::{Node, NodeSettings};
use crate::sentinel::Sentinels;

/// How often one step is sent on to another node.
const MAX_REDIRECTS: u32 = 5;
/// How often a step whose keys are on their way to another node is tried again, each time after
/// [`TRY_AGAIN_AFTER`]: moving a bucket of ordinary size takes less.
const MAX_TRIES_AGAIN: u32 = 50;
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The servers of a store.
#[derive(Debug)]
pub(crate) struct Nodes {
    place: Place,
    pub(crate) layout: Layout,
    fitness: Option<Arc<Fitness>>,
    /// Counts the changes of primaries: what was promised to those who wait may be lost with one.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
enum Place {
    One(Arc<Node>),
    Cluster(Box<Cluster>),
}

/// A reply, and where it came from.
pub(crate) struct Sent {
    pub(crate) value: Value,
    pub(crate) live: Live,
    pub(crate) node: Arc<Node>,
}

/// How often a step was turned away, and how.
#[derive(Default)]
struct Patience {
    redirects: u32,
    tries: u32,
}

impl Nodes {
    pub(crate) fn new(address: Address, layout: Layout, settings: NodeSettings) -> Self {
        let fitness = settings.fitness.clone();
        let place = match address {
            Address::Single(info) => {
                let name = info.addr().to_string();
                let target = move || Target::Server(Box::new(info.clone()));
                Place::One(Arc::new(Node::new(name, &settings, target)))
            }
            Address::Sentinel { sentinels, name, primary } => {
                let title = name.clone();
                let all = Arc::new(Sentinels { sentinels, name, template: primary });
                let target = move || Target::Primary(Arc::clone(&all));
                Place::One(Arc::new(Node::new(title, &settings, target)))
            }
            Address::Cluster { seeds, node } => {
                Place::Cluster(Box::new(Cluster::new(seeds, node, settings)))
            }
        };
        Self { place, layout, fitness, changes: watch::Sender::new(0) }
    }

    /// Hears of every change of a primary.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self.place, Place::Cluster(_))
    }

    /// The key of the last fence for a bucket: one server has one for all.
    pub(crate) fn fence(&self, bucket: u8) -> Key<'_> {
        self.layout.fence(self.is_cluster().then_some(bucket))
    }

    /// Sends a command to the server of a bucket, and goes where the servers send it. Only what
    /// certainly did nothing is sent again.
    pub(crate) async fn send(&self, bucket: u8, lane: u8, command: &Cmd) -> Result<Sent, Trouble> {
        self.ensure_fit().map_err(Trouble::Final)?;
        let mut patience = Patience::default();
        loop {
            let version = self.version();
            let node = self.node_of(bucket).await.map_err(Trouble::Final)?;
            let trouble = match node.live(lane).await {
                Ok(live) => match live.send(command).await {
                    Ok(value) => return Ok(Sent { value, live, node }),
                    Err(trouble) => trouble,
                },
                // Nothing was sent, and another server may have taken over.
                Err(error) => Trouble::Demoted(error),
            };
            let trouble = match trouble {
                Trouble::Ask(place) => match Box::pin(self.ask(&place, lane, command)).await {
                    Ok(sent) => return Ok(sent),
                    Err(trouble) => trouble,
                },
                other => other,
            };
            // Rare, and large: kept out of the future of every step.
            Box::pin(self.sent_away(version, &node, trouble, &mut patience)).await?;
        }
    }

    /// A connection to the server of a bucket.
    pub(crate) async fn live(&self, bucket: u8, lane: u8) -> StoreResult<Live> {
        self.ensure_fit()?;
        let node = self.node_of(bucket).await?;
        match node.live(lane).await {
            Ok(live) => Ok(live),
            // Another server may have taken over.
            Err(_) => {
                self.lost(&node);
                node.live(lane).await
            }
        }
    }

    /// Sends a command by one connection, and nowhere else.
    pub(crate) async fn send_by(&self, live: &Live, command: &Cmd) -> Result<Value, Trouble> {
        let sent = live.send(command).await;
        if let (Err(Trouble::Demoted(_) | Trouble::Broken(_)), Place::One(node)) =
            (&sent, &self.place)
        {
            self.lost(node);
        }
        sent
    }

    /// What to do before a step is sent once more; an error if it must not be.
    async fn sent_away(
        &self,
        version: u64,
        node: &Node,
        trouble: Trouble,
        patience: &mut Patience,
    ) -> Result<(), Trouble> {
        patience.redirects += 1;
        match trouble {
            Trouble::TryAgain(error) => {
                if patience.tries >= MAX_TRIES_AGAIN {
                    return Err(Trouble::Final(error));
                }
                patience.tries += 1;
                patience.redirects = 0;
                sleep(TRY_AGAIN_AFTER).await;
                Ok(())
            }
            Trouble::Moved | Trouble::Ask(_) if patience.redirects <= MAX_REDIRECTS => {
                self.learn(version).await.map_err(Trouble::Final)
            }
            Trouble::Demoted(error) => {
                self.lost(node);
                if patience.redirects > 1 || self.learn(version).await.is_err() {
                    return Err(Trouble::Final(error));
                }
                Ok(())
            }
            Trouble::Broken(error) => {
                self.lost(node);
                Err(Trouble::Final(error))
            }
            other => Err(other),
        }
    }

    /// Sends a command to a node that is about to get the bucket.
    async fn ask(&self, place: &str, lane: u8, command: &Cmd) -> Result<Sent, Trouble> {
        let Place::Cluster(cluster) = &self.place else {
            return Err(Trouble::Final(unserved("this bucket")));
        };
        let node = cluster.node_at(place).map_err(Trouble::Final)?;
        let live = node.live(lane).await.map_err(Trouble::Final)?;
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(command.clone());
        let value = live.send_all(&both).await?.pop().unwrap_or(Value::Nil);
        let value = value.extract_error().map_err(Trouble::of)?;
        Ok(Sent { value, live, node })
    }

    /// Nothing is asked of servers of which one may forget records.
    fn ensure_fit(&self) -> StoreResult<()> {
        self.fitness.as_ref().map_or(Ok(()), |fitness| fitness.ensure())
    }

    async fn node_of(&self, bucket: u8) -> StoreResult<Arc<Node>> {
        match &self.place {
            Place::One(node) => Ok(Arc::clone(node)),
            Place::Cluster(cluster) => {
                if let Some(node) = cluster.node_of(bucket) {
                    return Ok(node);
                }
                Box::pin(self.learn(cluster.version())).await?;
                cluster.node_of(bucket).ok_or_else(|| unserved(&format!("bucket {bucket:02x}")))
            }
        }
    }

    fn version(&self) -> u64 {
        match &self.place {
            Place::One(_) => 0,
            Place::Cluster(cluster) => cluster.version(),
        }
    }

    /// Learns who has which bucket, unless somebody did since.
    async fn learn(&self, version: u64) -> StoreResult<()> {
        if let Place::Cluster(cluster) = &self.place
            && cluster.learn(version, &self.layout).await?
        {
            self.changed();
        }
        Ok(())
    }

    /// Gives up the connections to a server. In a cluster the others go on, and a new owner of the
    /// buckets is noticed when they are learnt.
    fn lost(&self, node: &Node) {
        node.drop_live();
        if !self.is_cluster() {
            self.changed();
        }
    }

    /// Tells those who wait that what was promised to them may be lost.
    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Makes all connections, so that no step has to.
    pub(crate) async fn connect(&self) -> StoreResult<()> {
        for node in self.each().await? {
            node.connect().await?;
        }
        Ok(())
    }

    /// Sends one command to each server.
    pub(crate) async fn send_each(&self, command: &Cmd) -> StoreResult<Vec<Value>> {
        let mut replies = Vec::new();
        for node in self.each().await? {
            let live = node.live(0).await?;
            replies.push(live.send(command).await.map_err(Trouble::into_error)?);
        }
        Ok(replies)
    }

    /// Every server that has a bucket.
    async fn each(&self) -> StoreResult<Vec<Arc<Node>>> {
        let first = self.node_of(0).await?;
        Ok(match &self.place {
            Place::One(_) => vec![first],
            Place::Cluster(cluster) => cluster.nodes(),
        })
    }

    /// One bucket of each server.
    pub(crate) async fn bucket_of_each(&self) -> StoreResult<Vec<u8>> {
        let mut found: Vec<(String, u8)> = Vec::new();
        for bucket in 0..=u8::MAX {
            let node = self.node_of(bucket).await?;
            if !found.iter().any(|(name, _)| *name == node.name) {
                found.push((node.name.clone(), bucket));
            }
        }
        Ok(found.into_iter().map(|(_, bucket)| bucket).collect())
    }

    /// A client for the server on which the ends of claims are heard: in a cluster any node, for
    /// what is published at one of them is heard at all.
    pub(crate) async fn listening_post(&self, turn: usize) -> StoreResult<Client> {
        let mut each = self.each().await?;
        each.sort_by(|a, b| a.name.cmp(&b.name));
        let node = each.iter().cycle().nth(turn % each.len().max(1));
        let node = node.ok_or_else(|| unserved("any bucket"))?;
        let info = node.link().info().await?;
        Client::open(info).map_err(|error| {
            StoreError::not_applied(StoreErrorKind::Unavailable, error.to_string())
        })
    }
}
