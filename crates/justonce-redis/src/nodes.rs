//! Sends commands to the server that has the bucket, and follows redirects.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use redis::{Client, Cmd, Value};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::address::Address;
use crate::cluster::{Cluster, unserved};
use crate::connection::{Connection, Target};
use crate::error::CommandError;
use crate::layout::{Key, Layout};
use crate::node::{Node, NodeSettings};
use crate::requirements::Requirements;
use crate::sentinel::Sentinels;

/// The limit of redirects for one step.
const MAX_REDIRECTS: u32 = 5;
/// The limit of retries, each after [`RETRY_PAUSE`], for a step whose keys are being moved to
/// another node: moving a bucket of ordinary size takes less.
const MAX_RETRIES: u32 = 50;
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The servers of a store.
pub(crate) struct Nodes {
    topology: Topology,
    pub(crate) layout: Layout,
    requirements: Option<Arc<Requirements>>,
    /// Counts the changes of primaries: with a primary, the marks of waiters may be lost.
    changes: watch::Sender<u64>,
}

enum Topology {
    Single(Arc<Node>),
    Cluster(Box<Cluster>),
}

/// A reply, and its origin.
pub(crate) struct Reply {
    pub(crate) value: Value,
    pub(crate) connection: Connection,
    pub(crate) node: Arc<Node>,
}

/// The redirects and retries of one step.
#[derive(Default)]
struct Redirects {
    count: u32,
    retries: u32,
}

impl Nodes {
    pub(crate) fn new(address: Address, layout: Layout, settings: NodeSettings) -> Self {
        let requirements = settings.requirements.clone();
        let topology = match address {
            Address::Single(info) => {
                let name = info.addr().to_string();
                let target = move || Target::Server(Box::new(info.clone()));
                Topology::Single(Arc::new(Node::new(name, &settings, target)))
            }
            Address::Sentinel { sentinels, name, primary } => {
                let title = name.clone();
                let all = Arc::new(Sentinels { sentinels, name, template: primary });
                let target = move || Target::Primary(Arc::clone(&all));
                Topology::Single(Arc::new(Node::new(title, &settings, target)))
            }
            Address::Cluster { seeds, node } => {
                Topology::Cluster(Box::new(Cluster::new(seeds, node, settings)))
            }
        };
        Self { topology, layout, requirements, changes: watch::Sender::new(0) }
    }

    /// Signals every change of a primary.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self.topology, Topology::Cluster(_))
    }

    /// The key of the last fence of a bucket. A single server has one for all buckets.
    pub(crate) fn fence(&self, bucket: u8) -> Key<'_> {
        self.layout.fence(self.is_cluster().then_some(bucket))
    }

    /// Sends a command to the server of a bucket, and follows redirects. It is sent again only if
    /// it certainly did nothing.
    pub(crate) async fn send(
        &self,
        bucket: u8,
        slot: u8,
        command: &Cmd,
    ) -> Result<Reply, CommandError> {
        self.ensure_requirements().map_err(CommandError::Final)?;
        let mut redirects = Redirects::default();
        loop {
            let version = self.version();
            let node = self.node_of(bucket).await.map_err(CommandError::Final)?;
            let failure = match node.connection(slot).await {
                Ok(connection) => match connection.send(command).await {
                    Ok(value) => return Ok(Reply { value, connection, node }),
                    Err(failure) => failure,
                },
                // Nothing was sent. Another server may have taken over.
                Err(error) => CommandError::Demoted(error),
            };
            let failure = match failure {
                CommandError::Ask(address) => {
                    match Box::pin(self.ask(&address, slot, command)).await {
                        Ok(sent) => return Ok(sent),
                        Err(failure) => failure,
                    }
                }
                other => other,
            };
            // Rare, and large: kept out of the future of every step.
            Box::pin(self.before_retry(version, &node, failure, &mut redirects)).await?;
        }
    }

    /// A connection to the server of a bucket.
    pub(crate) async fn connection(&self, bucket: u8, slot: u8) -> StoreResult<Connection> {
        self.ensure_requirements()?;
        let node = self.node_of(bucket).await?;
        match node.connection(slot).await {
            Ok(connection) => Ok(connection),
            // Another server may have taken over.
            Err(_) => {
                self.disconnect(&node);
                node.connection(slot).await
            }
        }
    }

    /// Sends a command over one connection, without redirects.
    pub(crate) async fn send_over(
        &self,
        connection: &Connection,
        command: &Cmd,
    ) -> Result<Value, CommandError> {
        let sent = connection.send(command).await;
        if let (Err(CommandError::Demoted(_) | CommandError::Broken(_)), Topology::Single(node)) =
            (&sent, &self.topology)
        {
            self.disconnect(node);
        }
        sent
    }

    /// Prepares a retry of a step; an error if it must not be sent again.
    async fn before_retry(
        &self,
        version: u64,
        node: &Node,
        failure: CommandError,
        redirects: &mut Redirects,
    ) -> Result<(), CommandError> {
        redirects.count += 1;
        match failure {
            CommandError::TryAgain(error) => {
                if redirects.retries >= MAX_RETRIES {
                    return Err(CommandError::Final(error));
                }
                redirects.retries += 1;
                redirects.count = 0;
                sleep(RETRY_PAUSE).await;
                Ok(())
            }
            CommandError::Moved | CommandError::Ask(_) if redirects.count <= MAX_REDIRECTS => {
                self.refresh(version).await.map_err(CommandError::Final)
            }
            CommandError::Demoted(error) => {
                self.disconnect(node);
                if redirects.count > 1 || self.refresh(version).await.is_err() {
                    return Err(CommandError::Final(error));
                }
                Ok(())
            }
            CommandError::Broken(error) => {
                self.disconnect(node);
                Err(CommandError::Final(error))
            }
            other => Err(other),
        }
    }

    /// Sends a command to a node that is about to get the bucket.
    async fn ask(&self, address: &str, slot: u8, command: &Cmd) -> Result<Reply, CommandError> {
        let Topology::Cluster(cluster) = &self.topology else {
            return Err(CommandError::Final(unserved("this bucket")));
        };
        let node = cluster.node_at(address).map_err(CommandError::Final)?;
        let connection = node.connection(slot).await.map_err(CommandError::Final)?;
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(command.clone());
        let value = connection.send_all(&both).await?.pop().unwrap_or(Value::Nil);
        let value = value.extract_error().map_err(CommandError::of)?;
        Ok(Reply { value, connection, node })
    }

    /// Refuses steps while a server violates the requirements.
    fn ensure_requirements(&self) -> StoreResult<()> {
        self.requirements.as_ref().map_or(Ok(()), |requirements| requirements.ensure())
    }

    async fn node_of(&self, bucket: u8) -> StoreResult<Arc<Node>> {
        match &self.topology {
            Topology::Single(node) => Ok(Arc::clone(node)),
            Topology::Cluster(cluster) => {
                if let Some(node) = cluster.node_of(bucket) {
                    return Ok(node);
                }
                Box::pin(self.refresh(cluster.version())).await?;
                cluster.node_of(bucket).ok_or_else(|| unserved(&format!("bucket {bucket:02x}")))
            }
        }
    }

    fn version(&self) -> u64 {
        match &self.topology {
            Topology::Single(_) => 0,
            Topology::Cluster(cluster) => cluster.version(),
        }
    }

    /// Refreshes the map of buckets, unless it is newer than `version`.
    async fn refresh(&self, version: u64) -> StoreResult<()> {
        if let Topology::Cluster(cluster) = &self.topology
            && cluster.refresh(version, &self.layout).await?
        {
            self.notify_change();
        }
        Ok(())
    }

    /// Drops the connections to a server. In a cluster, a new owner of its buckets is noticed when
    /// the map is refreshed.
    fn disconnect(&self, node: &Node) {
        node.disconnect();
        if !self.is_cluster() {
            self.notify_change();
        }
    }

    /// The waiters have to check their claims again.
    fn notify_change(&self) {
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
            let connection = node.connection(0).await?;
            replies.push(connection.send(command).await.map_err(CommandError::into_error)?);
        }
        Ok(replies)
    }

    /// Every server that has a bucket.
    async fn each(&self) -> StoreResult<Vec<Arc<Node>>> {
        let first = self.node_of(0).await?;
        Ok(match &self.topology {
            Topology::Single(_) => vec![first],
            Topology::Cluster(cluster) => cluster.nodes(),
        })
    }

    /// One bucket of each server.
    pub(crate) async fn bucket_of_each(&self) -> StoreResult<Vec<u8>> {
        if !self.is_cluster() {
            return Ok(vec![0]);
        }
        let mut found: Vec<(String, u8)> = Vec::new();
        for bucket in 0..=u8::MAX {
            let node = self.node_of(bucket).await?;
            if !found.iter().any(|(name, _)| *name == node.name) {
                found.push((node.name.clone(), bucket));
            }
        }
        Ok(found.into_iter().map(|(_, bucket)| bucket).collect())
    }

    /// A client for the server that the ends of claims are received from. In a cluster that can be
    /// any node: messages reach all of them.
    pub(crate) async fn pubsub_client(&self, attempt: usize) -> StoreResult<Client> {
        let mut each = self.each().await?;
        each.sort_by(|a, b| a.name.cmp(&b.name));
        let node = each.iter().cycle().nth(attempt % each.len().max(1));
        let node = node.ok_or_else(|| unserved("any bucket"))?;
        let info = node.connector().info().await?;
        Client::open(info).map_err(|error| {
            StoreError::not_applied(StoreErrorKind::Unavailable, error.to_string())
        })
    }
}
