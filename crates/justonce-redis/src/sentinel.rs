//! Sentinels, which name the primary.

use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use redis::{Client, ConnectionInfo};
use tokio::time::timeout;

use crate::address::Template;
use crate::error::{CONNECT_TIMEOUT, silent, unreachable};

/// The sentinels of one primary.
pub(crate) struct Sentinels {
    pub(crate) sentinels: Vec<ConnectionInfo>,
    pub(crate) name: String,
    pub(crate) template: Template,
}

impl Sentinels {
    /// The address of the primary, from the first sentinel that answers.
    pub(crate) async fn primary(&self) -> StoreResult<ConnectionInfo> {
        let mut last =
            StoreError::not_applied(StoreErrorKind::Unavailable, "no sentinel is configured");
        for sentinel in &self.sentinels {
            match self.query(sentinel).await {
                Ok(Some((host, port))) => return self.template.at(&format!("{host}:{port}")),
                Ok(None) => {
                    let message =
                        format!("the sentinel at {} knows no {}", sentinel.addr(), self.name);
                    last = StoreError::not_applied(StoreErrorKind::Unavailable, message);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn query(&self, sentinel: &ConnectionInfo) -> StoreResult<Option<(String, u16)>> {
        let what = format!("the sentinel at {}", sentinel.addr());
        let reply = async {
            let client = Client::open(sentinel.clone())?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            let mut command = redis::cmd("SENTINEL");
            command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
            command.query_async(&mut connection).await
        };
        match timeout(CONNECT_TIMEOUT, reply).await {
            Ok(reply) => reply.map_err(|error| unreachable(&what, sentinel.addr(), error)),
            Err(_) => Err(silent(&what, sentinel.addr())),
        }
    }
}
