//! The hand-over as the predecessor conducts it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use justonce::Engine;
use justonce_net::SocketAddress;
use justonce_proxy::{ListenSocket, ListenerHandle};
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, info};

use super::channel::{Message, PassedSocket};
use super::quiet::{Requests, quiet};
use super::successor::{Start, Successor};
use crate::gateway::Gateway;
use crate::store_slot::StoreSlot;

/// How long the successor may take to read its configuration and to open its log.
const PREPARED_WITHIN: Duration = Duration::from_secs(60);
/// How long it may take to open the store and to accept connections.
const SERVING_WITHIN: Duration = Duration::from_secs(60);
/// How long clients may take to come back with another connection: until then, what they send over
/// an old one is answered, with `Connection: close`.
const LINGER: Duration = Duration::from_secs(5);
/// How long this process may take to get its own store back.
const BACK_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked how many connections are left.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// Hands the sockets of this process over to a successor.
pub(crate) struct Handover {
    start: Start,
    sockets: Vec<Served>,
    gateway: Gateway,
    engine: Engine,
    /// The embedded store, which has one owner; nothing for a store that processes share.
    store: Option<StoreSlot>,
    requests: Requests,
    pause: Duration,
    grace: Duration,
}

/// A socket that this process serves.
pub(crate) struct Served {
    told: PassedSocket,
    socket: OwnedFd,
    pub(crate) listener: Option<ListenerHandle>,
}

/// What is needed to hand the sockets over.
pub(crate) struct Parts {
    pub(crate) start: Start,
    pub(crate) sockets: Vec<Served>,
    pub(crate) gateway: Gateway,
    pub(crate) engine: Engine,
    pub(crate) store: Option<StoreSlot>,
    pub(crate) requests: Requests,
    /// How long new connections may wait.
    pub(crate) pause: Duration,
    /// How long what runs may take before they wait.
    pub(crate) grace: Duration,
}

impl Served {
    /// A socket for a setting, with its address in the configuration.
    ///
    /// # Errors
    ///
    /// If no second handle to it can be made.
    pub(crate) fn new(
        setting: &str,
        configured: &SocketAddress,
        socket: &ListenSocket,
    ) -> anyhow::Result<Self> {
        let told = PassedSocket {
            setting: setting.to_owned(),
            configured: configured.to_string(),
            // It is looked at when the socket is handed over.
            owns_file: false,
        };
        let socket = socket.as_fd().try_clone_to_owned().context("cannot keep a socket")?;
        Ok(Self { told, socket, listener: None })
    }

    /// What the successor is told. By now another process may have put its own file in the place of
    /// a Unix socket's.
    fn told(&self) -> PassedSocket {
        let owns_file = self.listener.as_ref().is_some_and(ListenerHandle::owns_file);
        PassedSocket { owns_file, ..self.told.clone() }
    }
}

impl Handover {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { start, sockets, gateway, engine, store, requests, pause, grace } = parts;
        Self { start, sockets, gateway, engine, store, requests, pause, grace }
    }

    /// Starts a successor and hands everything over to it. Returns the number of its process: this
    /// one has nothing left to do but to finish what runs.
    ///
    /// # Errors
    ///
    /// If the successor does not serve in time. This process goes on as before then, unless its
    /// store cannot be opened again: that is [`Lost`].
    pub(crate) async fn attempt(&self) -> anyhow::Result<u32> {
        // The first process of a container ends all others with itself.
        ensure!(
            std::process::id() != 1,
            "this is the first process of a container, which ends with it: replace the container"
        );
        let sockets: Vec<_> =
            self.sockets.iter().map(|one| (one.told(), one.socket.as_fd())).collect();
        let mut successor = Successor::start(&self.start, &sockets)?;
        let pid = successor.id().context("the successor has ended")?;
        info!(pid, "a successor starts");
        match self.hand_over(&mut successor).await {
            Ok(()) => {
                successor.let_go();
                Ok(pid)
            }
            Err(why) => {
                successor.kill().await;
                self.go_on().await?;
                Err(why)
            }
        }
    }

    async fn hand_over(&self, successor: &mut Successor) -> anyhow::Result<()> {
        let prepared = timeout(PREPARED_WITHIN, successor.hear(Message::Prepared)).await;
        prepared.context("the successor was not ready in time")??;
        match &self.store {
            None => {
                self.serve(successor).await?;
                // Both have accepted connections until now.
                self.each(ListenerHandle::stop_accepting);
                self.each(ListenerHandle::leave);
                self.linger(|listener| listener.askers().now).await;
                successor.ensure_alive()?;
            }
            Some(store) => {
                let is_backed_up = store.backups().is_some_and(|backups| backups.is_busy());
                ensure!(!is_backed_up, "a backup is being made: try again when it is done");
                self.each(ListenerHandle::leave);
                self.requests.mark();
                info!("clients are told to come back with other connections");
                self.linger(|listener| listener.askers().before).await;
                self.let_end().await?;
                self.pause(store, successor).await?;
            }
        }
        self.each(ListenerHandle::pass_on);
        Ok(())
    }

    /// Waits for the requests that were under way when clients were told, and for operations whose
    /// callers have left. Nobody else waits for those: new requests are served.
    async fn let_end(&self) -> anyhow::Result<()> {
        let until = Instant::now() + self.grace;
        loop {
            // No more operations than requests can be those of the requests since then.
            let left_behind = self.engine.load().executing.saturating_sub(self.requests.since());
            let left = self.requests.before().max(left_behind);
            if left == 0 {
                return Ok(());
            }
            ensure!(Instant::now() < until, "{left} requests have not ended within `grace`");
            sleep(LOOK_AGAIN_AFTER).await;
        }
    }

    /// Hands the store over. Meanwhile, new connections wait.
    async fn pause(&self, store: &StoreSlot, successor: &mut Successor) -> anyhow::Result<()> {
        let (paused, deadline) = (Instant::now(), Instant::now() + self.pause);
        self.each(ListenerHandle::stop_accepting);
        self.each(ListenerHandle::drain);
        info!(at_most = ?self.pause, "new connections wait");
        self.gateway.stop_completing();
        let listeners: Vec<_> = self.listeners().collect();
        quiet(&listeners, &self.requests, &self.engine, deadline).await?;
        store.release(deadline).await?;
        // Nothing can begin any more: begins wait for the store.
        let executing = self.engine.load().executing;
        ensure!(executing == 0, "{executing} operations have begun at the last moment");
        let quiet_after = paused.elapsed();
        self.serve(successor).await?;
        info!(?quiet_after, pause = ?paused.elapsed(), "the store was handed over");
        store.give_up();
        Ok(())
    }

    /// Lets the successor serve.
    async fn serve(&self, successor: &mut Successor) -> anyhow::Result<()> {
        successor.take_store().await?;
        let serving = timeout(SERVING_WITHIN, successor.hear(Message::Serving)).await;
        serving.context("the successor did not serve in time")?
    }

    /// Goes on as before.
    async fn go_on(&self) -> anyhow::Result<()> {
        if let Some(store) = &self.store
            && store.backups().is_none()
            && let Err(why) = store.reopen(BACK_WITHIN).await
        {
            error!("after a hand-over that failed the store cannot be opened again: {why:#}");
            bail!(Lost);
        }
        self.each(ListenerHandle::resume);
        if let Err(why) = self.gateway.start_completing() {
            error!("operations of dead gateways are not completed any more: {why:#}");
        }
        Ok(())
    }

    /// Waits until no such connections are left, or long enough.
    async fn linger(&self, left: impl Fn(&ListenerHandle) -> usize) {
        let until = Instant::now() + LINGER;
        while self.listeners().any(|listener| left(listener) > 0) && Instant::now() < until {
            sleep(LOOK_AGAIN_AFTER).await;
        }
    }

    fn listeners(&self) -> impl Iterator<Item = &ListenerHandle> {
        self.sockets.iter().filter_map(|socket| socket.listener.as_ref())
    }

    fn each(&self, change: fn(&ListenerHandle)) {
        self.listeners().for_each(change);
    }
}

/// The store of this process is gone.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the store could neither be handed over nor be opened again")]
pub(crate) struct Lost;
