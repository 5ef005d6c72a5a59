//! Upgraded connections: bytes are copied both ways, unchanged.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, copy_bidirectional_with_sizes};

use super::connection::Connection;
use super::upstreams::ActiveRequest;
use crate::abort::Abort;

/// How many bytes are buffered in each direction.
const COPY_BUFFER_BYTES: usize = 16 * 1024;

/// The client's side of a connection that asks for another protocol.
pub(super) struct ClientUpgrade {
    pub(super) client: OnUpgrade,
    /// When it must end, if its listener says that.
    pub(super) abort: Option<Abort>,
}

/// Copies between a client and an upstream that both have switched to another protocol, until
/// either of them ends, or the listener is aborted. There is no timeout.
pub(super) fn splice(client: ClientUpgrade, connection: Connection, request: ActiveRequest) {
    let Some((mut upstream, early, slot)) = connection.into_stream() else { return };
    let ClientUpgrade { client, abort } = client;
    let copy = async move {
        // The connection and the request count until the end.
        let _guards = (slot, request);
        let Ok(client) = client.await else { return };
        let mut client = TokioIo::new(client);
        if !early.is_empty() && client.write_all(&early).await.is_err() {
            return;
        }
        let size = COPY_BUFFER_BYTES;
        let copied = copy_bidirectional_with_sizes(&mut client, &mut upstream, size, size).await;
        if let Err(error) = copied {
            tracing::debug!(%error, "an upgraded connection broke off");
        }
    };
    tokio::spawn(async move {
        match abort {
            None => copy.await,
            Some(abort) => tokio::select! {
                () = copy => {}
                () = abort.aborted() => {}
            },
        }
    });
}
