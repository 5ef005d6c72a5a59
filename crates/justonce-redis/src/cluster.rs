//! The nodes of a cluster, and which of them has which bucket.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use redis::ConnectionInfo;

use crate::address::Template;
use crate::layout::Layout;
use crate::link::{Link, Target};
use crate::node::{Node, NodeSettings};
use crate::slots;

/// A cluster as far as it is known.
pub(crate) struct Cluster {
    seeds: Vec<ConnectionInfo>,
    template: Template,
    settings: NodeSettings,
    map: Mutex<Map>,
    learning: tokio::sync::Mutex<()>,
}

/// Who has which bucket.
#[derive(Default)]
struct Map {
    /// Counts how often it was learnt.
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
        let (map, learning) = Default::default();
        Self { seeds, template, settings, map, learning }
    }

    /// The version of what is known.
    pub(crate) fn version(&self) -> u64 {
        self.map().version
    }

    /// Who has a bucket, as far as is known.
    pub(crate) fn node_of(&self, bucket: u8) -> Option<Arc<Node>> {
        self.map().by_bucket.get(usize::from(bucket)).cloned().flatten()
    }

    /// All nodes that have a bucket.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.map().nodes.values().cloned().collect()
    }

    /// The node at a place, which may be one that has no bucket yet.
    pub(crate) fn node_at(&self, place: &str) -> StoreResult<Arc<Node>> {
        if let Some(node) = self.map().nodes.get(place) {
            return Ok(Arc::clone(node));
        }
        self.new_node(place)
    }

    fn new_node(&self, place: &str) -> StoreResult<Arc<Node>> {
        let info = self.template.at(place)?;
        let target = move || Target::Server(Box::new(info.clone()));
        Ok(Arc::new(Node::new(place.to_owned(), &self.settings, target)))
    }

    /// Asks who has which bucket, unless somebody did since `version`. Says whether a bucket has
    /// another primary than before.
    pub(crate) async fn learn(&self, version: u64, layout: &Layout) -> StoreResult<bool> {
        let _turn = self.learning.lock().await;
        if self.version() != version {
            return Ok(false);
        }
        let mut last = None;
        for node in self.nodes() {
            match self.learn_from(node.link(), host(&node.name), layout).await {
                Ok(changed) => return Ok(changed),
                Err(error) => last = Some(error),
            }
        }
        for seed in &self.seeds {
            let target = Target::Server(Box::new(seed.clone()));
            let link = Link::new(target, self.settings.reply_timeout, None);
            let place = seed.addr().to_string();
            match self.learn_from(&link, host(&place), layout).await {
                Ok(changed) => return Ok(changed),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| unserved("the cluster")))
    }

    async fn learn_from(&self, link: &Link, asked: &str, layout: &Layout) -> StoreResult<bool> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let live = link.live().await?;
        let reply = live.send(&command).await.map_err(|trouble| {
            let error = trouble.into_error();
            // Asking changes nothing.
            StoreError::not_applied(error.kind(), error.to_string())
        })?;
        let places = slots::places(&reply, layout, asked);
        let mut fresh = Map { version: self.version() + 1, ..Map::default() };
        for place in &places {
            let node = match place {
                None => None,
                Some(place) => Some(match fresh.nodes.get(place) {
                    Some(node) => Arc::clone(node),
                    None => {
                        let node = self.node_at(place)?;
                        fresh.nodes.insert(place.clone(), Arc::clone(&node));
                        node
                    }
                }),
            };
            fresh.by_bucket.push(node);
        }
        if fresh.nodes.is_empty() {
            return Err(unserved("any bucket"));
        }
        let mut map = self.map();
        let name = |node: &Option<Arc<Node>>| node.as_ref().map(|node| node.name.clone());
        let changed = !map.by_bucket.iter().map(name).eq(fresh.by_bucket.iter().map(name));
        *map = fresh;
        Ok(changed)
    }

    fn map(&self) -> std::sync::MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The host of `host:port`.
fn host(place: &str) -> &str {
    place.rsplit_once(':').map_or(place, |(host, _)| host)
}

/// No node of the cluster serves this.
pub(crate) fn unserved(what: &str) -> StoreError {
    let message = format!("no node of the cluster serves {what}");
    StoreError::not_applied(StoreErrorKind::Unavailable, message)
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("nodes", &self.map().nodes.len()).finish_non_exhaustive()
    }
}
