//! Other protocols: bytes are copied both ways, untouched.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, copy_bidirectional_with_sizes};

use super::connection::Connection;
use super::upstreams::Turn;

/// How much is held of each direction at most.
const COPY_BUFFER_BYTES: usize = 16 * 1024;

/// Connects a client and an upstream that both have switched to another protocol, until either
/// of them ends. Silence is fine.
pub(super) fn splice(client: OnUpgrade, connection: Connection, turn: Turn) {
    let Some((mut upstream, early, slot)) = connection.into_stream() else { return };
    tokio::spawn(async move {
        // Both count as used until the end.
        let _held = (slot, turn);
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
    });
}
