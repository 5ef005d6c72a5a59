//! One server, and the connections to it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use justonce_core::StoreResult;

use crate::connection::{Connection, Connector, Target};
use crate::replicas::{Confirm, Confirmations, MarkExecutor};
use crate::requirements::Requirements;

/// The settings for the connections to each server.
#[derive(Clone)]
pub(crate) struct NodeSettings {
    /// The time limit for a reply.
    pub(crate) reply_timeout: Duration,
    /// The connections to each server.
    pub(crate) connections: usize,
    /// What every server has to meet, if anything.
    pub(crate) requirements: Option<Arc<Requirements>>,
    /// Whether steps wait for replicas.
    pub(crate) confirm: Option<Confirm>,
}

/// One server.
pub(crate) struct Node {
    /// Its address, or the name that the sentinels know.
    pub(crate) name: String,
    first: Connector,
    others: Vec<Connector>,
    confirmations: Option<Confirmations>,
}

impl Node {
    pub(crate) fn new(
        name: String,
        settings: &NodeSettings,
        target: impl Fn() -> Target + Send + Sync + 'static,
    ) -> Self {
        let NodeSettings { reply_timeout, connections, requirements, confirm } = settings;
        let connector = || Connector::new(target(), *reply_timeout, requirements.clone());
        let (first, others) = (connector(), (1..*connections).map(|_| connector()).collect());
        let marks =
            |confirm| MarkExecutor::queue(confirm, *reply_timeout, requirements.clone(), target);
        Self { name, first, others, confirmations: confirm.map(marks) }
    }

    /// The queue of steps that wait for its replicas, if steps wait for replicas.
    pub(crate) const fn confirmations(&self) -> Option<&Confirmations> {
        self.confirmations.as_ref()
    }

    /// A connection. The same slot always gives the same one, as long as it lives.
    pub(crate) async fn connection(&self, slot: u8) -> StoreResult<Connection> {
        let connections = self.others.len() + 1;
        let connector = match usize::from(slot) % connections {
            0 => &self.first,
            at => self.others.get(at - 1).unwrap_or(&self.first),
        };
        connector.connection().await
    }

    /// Makes all connections.
    pub(crate) async fn connect(&self) -> StoreResult<()> {
        try_join_all(self.others.iter().map(Connector::connection)).await?;
        self.first.connection().await.map(|_| ())
    }

    /// The first connector, which also knows the address.
    pub(crate) const fn connector(&self) -> &Connector {
        &self.first
    }

    /// Drops all connections.
    pub(crate) fn disconnect(&self) {
        self.first.disconnect();
        for connector in &self.others {
            connector.disconnect();
        }
    }
}
