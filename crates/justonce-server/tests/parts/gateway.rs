//! A gateway without rules.

use std::net::SocketAddr;
use std::time::Duration;

use justonce_server::listen::{ListenLimits, Listener, Served};
use justonce_server::proxy::{Proxy, ProxySettings};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::settings;

pub fn listener(limits: ListenLimits) -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap(), limits).unwrap()
}

/// A listener in front of a proxy, and nothing between them.
pub struct Gateway {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<Served>>,
}

impl Gateway {
    pub fn to(upstream: SocketAddr) -> Self {
        Self::start(settings(upstream), ListenLimits::default())
    }

    pub fn start(settings: ProxySettings, limits: ListenLimits) -> Self {
        Self::serve(settings, listener(limits), Duration::from_secs(60))
    }

    pub fn serve(settings: ProxySettings, listener: Listener, grace: Duration) -> Self {
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
    pub fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Waits for the end of the shutdown.
    pub async fn ended(mut self) -> Served {
        self.task.take().unwrap().await.unwrap()
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}
