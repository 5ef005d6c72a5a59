//! Asking sentinels where the primary is.

use std::collections::HashMap;

use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use redis::{Client, ConnectionInfo, Value};
use tokio::time::timeout;

use crate::address::Template;
use crate::checks::Server;
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

/// The primary and the replicas that answer, by what a sentinel says to GET-MASTER-ADDR-BY-NAME and
/// REPLICAS.
pub(crate) fn group_of(replies: &[Value]) -> Vec<Server> {
    let [primary, replicas] = replies else {
        return Vec::new();
    };
    let Ok(Some((host, port))) = redis::from_redis_value_ref::<Option<(String, u16)>>(primary)
    else {
        return Vec::new();
    };
    let mut found = vec![Server { place: format!("{host}:{port}"), is_primary: true }];
    let replicas: Vec<HashMap<String, String>> =
        redis::from_redis_value_ref(replicas).unwrap_or_default();
    for replica in replicas {
        let figure = |name: &str| replica.get(name).map(String::as_str).unwrap_or_default();
        let is_away = figure("flags").split(',').any(|flag| flag == "s_down");
        if let (Some(host), Some(port), false) = (replica.get("ip"), replica.get("port"), is_away) {
            found.push(Server { place: format!("{host}:{port}"), is_primary: false });
        }
    }
    found
}
