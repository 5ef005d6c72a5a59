//! One server, and how it is reached.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use justonce_core::StoreResult;

use crate::confirm::{Confirm, Confirmations, Marks};
use crate::fitness::Fitness;
use crate::link::{Link, Live, Target};

/// How each server is reached.
#[derive(Clone, Debug)]
pub(crate) struct NodeSettings {
    /// How long a reply may take.
    pub(crate) reply_timeout: Duration,
    /// How many connections there are to each server.
    pub(crate) lanes: usize,
    /// Where every server must be fit, what is known about them.
    pub(crate) fitness: Option<Arc<Fitness>>,
    /// Whether replicas are waited for.
    pub(crate) confirm: Option<Confirm>,
}

/// One server.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its place, or the name by which the sentinels know it.
    pub(crate) name: String,
    first: Link,
    others: Vec<Link>,
    confirmations: Option<Arc<Confirmations>>,
}

impl Node {
    pub(crate) fn new(
        name: String,
        settings: &NodeSettings,
        target: impl Fn() -> Target + Send + Sync + 'static,
    ) -> Self {
        let NodeSettings { reply_timeout, lanes, fitness, confirm } = settings;
        let link = || Link::new(target(), *reply_timeout, fitness.clone());
        let (first, others) = (link(), (1..*lanes).map(|_| link()).collect());
        let marks = |confirm| Marks::lanes(confirm, *reply_timeout, fitness.clone(), target);
        Self { name, first, others, confirmations: confirm.map(marks) }
    }

    /// Those who wait for its replicas; nothing where nobody does.
    pub(crate) const fn confirmations(&self) -> Option<&Arc<Confirmations>> {
        self.confirmations.as_ref()
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
