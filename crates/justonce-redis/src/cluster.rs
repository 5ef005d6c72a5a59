//! The nodes of a cluster, and the buckets of each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use justonce_core::store::PerRuntime;
use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use redis::ConnectionInfo;

use crate::address::Template;
use crate::connection::{Connector, Target};
use crate::discovery::primaries;
use crate::layout::Layout;
use crate::lock::lock;
use crate::node::{Node, NodeSettings};

/// A cluster as far as it is known.
pub(crate) struct Cluster {
    seeds: Vec<ConnectionInfo>,
    template: Template,
    settings: NodeSettings,
    map: Mutex<Map>,
    /// Held while the map is read. Each runtime has one: it may be blocked meanwhile.
    refreshing: PerRuntime<tokio::sync::Mutex<()>>,
}

/// The node of each bucket.
#[derive(Default)]
struct Map {
    /// Counts the refreshes.
    version: u64,
    nodes: HashMap<String, Arc<Node>>,
    by_bucket: Vec<Option<Arc<Node>>>,
}

impl Cluster {
    pub(crate) fn new(
        seeds: Vec<ConnectionInfo>,
        template: Template,
        settings: NodeSettings,
    ) -> Self {
        let map = Mutex::default();
        Self { seeds, template, settings, map, refreshing: PerRuntime::new() }
    }

    /// The version of the map.
    pub(crate) fn version(&self) -> u64 {
        self.map().version
    }

    /// The node of a bucket, if it is known.
    pub(crate) fn node_of(&self, bucket: u8) -> Option<Arc<Node>> {
        self.map().by_bucket.get(usize::from(bucket)).cloned().flatten()
    }

    /// All nodes that have a bucket.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.map().nodes.values().cloned().collect()
    }

    /// The node at an address. It may have no bucket yet.
    pub(crate) fn node_at(&self, address: &str) -> StoreResult<Arc<Node>> {
        if let Some(node) = self.map().nodes.get(address) {
            return Ok(Arc::clone(node));
        }
        let info = self.template.at(address)?;
        let target = move || Target::Server(Box::new(info.clone()));
        Ok(Arc::new(Node::new(address.to_owned(), &self.settings, target)))
    }

    /// Reads the map from a node, unless it is newer than `version`. Tells whether a bucket has
    /// another primary than before.
    pub(crate) async fn refresh(&self, version: u64, layout: &Layout) -> StoreResult<bool> {
        let refreshing = self.refreshing.get(Default::default);
        let _turn = refreshing.lock().await;
        if self.version() != version {
            return Ok(false);
        }
        let mut last = unserved("the cluster");
        for node in self.nodes() {
            match self.refresh_from(node.connector(), &node.name, layout).await {
                Ok(changed) => return Ok(changed),
                Err(error) => last = error,
            }
        }
        for seed in &self.seeds {
            let target = Target::Server(Box::new(seed.clone()));
            let connector = Connector::new(target, self.settings.reply_timeout, None);
            match self.refresh_from(&connector, &seed.addr().to_string(), layout).await {
                Ok(changed) => return Ok(changed),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn refresh_from(
        &self,
        connector: &Connector,
        address: &str,
        layout: &Layout,
    ) -> StoreResult<bool> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let before = self.version();
        let connection = connector.connection().await?;
        let reply = connection.send(&command).await.map_err(|error| {
            let error = error.into_error();
            // The command changes nothing.
            StoreError::not_applied(error.kind(), error.to_string())
        })?;
        let mut fresh = Map { version: before + 1, ..Map::default() };
        for address in primaries(&reply, layout, host(address)) {
            let node = match address {
                None => None,
                Some(address) => {
                    let known = fresh.nodes.get(&address).cloned();
                    let node = known.map_or_else(|| self.node_at(&address), Ok)?;
                    fresh.nodes.insert(address, Arc::clone(&node));
                    Some(node)
                }
            };
            fresh.by_bucket.push(node);
        }
        if fresh.nodes.is_empty() {
            return Err(unserved("any bucket"));
        }
        let mut map = self.map();
        if map.version != before {
            // Another runtime was faster, and may have read it later.
            return Ok(false);
        }
        let name = |node: &Option<Arc<Node>>| node.as_ref().map(|node| node.name.clone());
        let changed = !map.by_bucket.iter().map(name).eq(fresh.by_bucket.iter().map(name));
        *map = fresh;
        Ok(changed)
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        lock(&self.map)
    }
}

/// The host of `host:port`.
pub(crate) fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// No node of the cluster serves this.
pub(crate) fn unserved(what: &str) -> StoreError {
    let message = format!("no node of the cluster serves {what}");
    StoreError::not_applied(StoreErrorKind::Unavailable, message)
}
