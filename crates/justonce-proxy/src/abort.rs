//! The end of connections that have switched to another protocol.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

/// Ends the connections of a listener that have switched to another protocol, when the grace
/// period of the listener is over: an extension of requests that ask for a switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Abort(Arc<CancellationToken>);

impl Abort {
    /// Ends them.
    pub(crate) fn abort(&self) {
        self.0.cancel();
    }

    /// Waits until they must end.
    pub(crate) async fn aborted(&self) {
        self.0.cancelled().await;
    }
}
