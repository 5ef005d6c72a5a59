//! A gateway without rules.

use std::net::SocketAddr;
use std::time::Duration;

use justonce_proxy::{ConnectionCounts, Listener, ListenerSettings, Proxy, ProxySettings};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::settings;

/// The settings of these tests, unless one says otherwise.
pub(crate) fn listener_settings() -> ListenerSettings {
    ListenerSettings {
        max_connections: 20_000,
        header_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(75),
        body_timeout: Duration::from_secs(30),
        max_head_bytes: 64 * 1024,
        handshake_timeout: ListenerSettings::HANDSHAKE_TIMEOUT,
    }
}

pub(crate) fn listener(limits: ListenerSettings) -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap(), limits).unwrap()
}

/// A listener in front of a proxy, and nothing between them.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<ConnectionCounts>>,
}

impl Gateway {
    pub(crate) fn to(upstream: SocketAddr) -> Self {
        Self::start(settings(upstream), listener_settings())
    }

    pub(crate) fn start(settings: ProxySettings, limits: ListenerSettings) -> Self {
        Self::serve(settings, listener(limits), Duration::from_secs(60))
    }

    pub(crate) fn serve(settings: ProxySettings, listener: Listener, grace: Duration) -> Self {
        let address = listener.local_addr().unwrap();
        let proxy = Proxy::new(settings).unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let serving = listener.serve(move || proxy.clone(), shutdown, grace);
        Self { address, stop: Some(stop), task: Some(tokio::spawn(serving)) }
    }

    /// Begins to shut down.
    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Waits for the end of the shutdown.
    pub(crate) async fn ended(mut self) -> ConnectionCounts {
        self.task.take().unwrap().await.unwrap()
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}
