//! One server, and how it is reached.

use std::time::Duration;

use futures_util::future::try_join_all;
use justonce_core::StoreResult;

use crate::link::{Link, Live, Target};

/// How each server is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeSettings {
    /// How long a reply may take.
    pub(crate) reply_timeout: Duration,
    /// How many connections there are to each server.
    pub(crate) lanes: usize,
}

/// One server.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its place, or the name by which the sentinels know it.
    pub(crate) name: String,
    first: Link,
    others: Vec<Link>,
}

impl Node {
    pub(crate) fn new(name: String, settings: NodeSettings, target: impl Fn() -> Target) -> Self {
        let link = || Link::new(target(), settings.reply_timeout);
        Self { name, first: link(), others: (1..settings.lanes).map(|_| link()).collect() }
    }

    /// A connection. The same lane always gives the same one, as long as it lives.
    pub(crate) async fn live(&self, lane: u8) -> StoreResult<Live> {
        let lanes = self.others.len() + 1;
        let link = match usize::from(lane) % lanes {
            0 => &self.first,
            at => self.others.get(at - 1).unwrap_or(&self.first),
        };
        link.live().await
    }

    /// Makes all connections.
    pub(crate) async fn connect(&self) -> StoreResult<()> {
        try_join_all(self.others.iter().map(Link::live)).await?;
        self.first.live().await.map(|_| ())
    }

    /// The first connection, which is also told where to connect.
    pub(crate) const fn link(&self) -> &Link {
        &self.first
    }

    /// Gives up all connections.
    pub(crate) fn drop_live(&self) {
        self.first.drop_live();
        for link in &self.others {
            link.drop_live();
        }
    }
}
