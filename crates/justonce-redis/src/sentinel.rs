//! Asking sentinels where the primary is.

use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use redis::{Client, ConnectionInfo};
use tokio::time::timeout;

use crate::address::Template;
use crate::error::unreachable;
use crate::link::{CONNECT_TIMEOUT, silent};

/// The sentinels of one primary.
pub(crate) struct Sentinels {
    pub(crate) sentinels: Vec<ConnectionInfo>,
    pub(crate) name: String,
    pub(crate) template: Template,
}

impl Sentinels {
    /// Where the primary is, by the word of the first sentinel that answers.
    pub(crate) async fn primary(&self) -> StoreResult<ConnectionInfo> {
        let mut last = None;
        for sentinel in &self.sentinels {
            match self.ask(sentinel).await {
                Ok(Some((host, port))) => return self.template.at(&format!("{host}:{port}")),
                Ok(None) => {
                    let message =
                        format!("the sentinel at {} knows no {}", sentinel.addr(), self.name);
                    last = Some(StoreError::not_applied(StoreErrorKind::Unavailable, message));
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            StoreError::not_applied(StoreErrorKind::Unavailable, "there is no sentinel to ask")
        }))
    }

    async fn ask(&self, sentinel: &ConnectionInfo) -> StoreResult<Option<(String, u16)>> {
        let what = format!("the sentinel at {}", sentinel.addr());
        let asked = async {
            let client = Client::open(sentinel.clone())?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            let mut command = redis::cmd("SENTINEL");
            command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
            command.query_async::<Option<(String, u16)>>(&mut connection).await
        };
        match timeout(CONNECT_TIMEOUT, asked).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(error)) => Err(unreachable(&what, sentinel.addr(), error)),
            Err(_) => Err(silent(&what, sentinel.addr())),
        }
    }
}
