//! The sockets that this process listens on: opened here, by the service manager, or by a
//! predecessor.

use anyhow::{Context, bail};
use justonce_net::SocketAddress;
use justonce_proxy::ListenSocket;
use tracing::info;

use crate::handover::Predecessor;
use crate::systemd::{self, Activated};

/// The sockets that were open before this process began.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    passed: Vec<Passed>,
    /// The process that this one takes over from.
    predecessor: Option<Predecessor>,
}

/// A socket that was open before.
#[derive(Debug)]
struct Passed {
    /// The name that the service manager gave to it, or the setting it had in the predecessor.
    name: String,
    /// The address in the predecessor's configuration.
    configured: Option<String>,
    socket: ListenSocket,
}

impl Sockets {
    /// Takes what was passed on to this process. It is called before there are threads.
    ///
    /// # Errors
    ///
    /// If something was passed that cannot be used.
    pub(crate) fn of_process(takes_over: bool) -> anyhow::Result<Self> {
        if takes_over {
            let (predecessor, sockets) = Predecessor::find()?;
            let passed = sockets.into_iter().map(|(told, socket)| Passed {
                name: told.setting,
                configured: Some(told.configured),
                socket,
            });
            return Ok(Self { passed: passed.collect(), predecessor: Some(predecessor) });
        }
        let activated = systemd::activated()?.into_iter();
        let passed =
            activated.map(|Activated { name, socket }| Passed { name, configured: None, socket });
        Ok(Self { passed: passed.collect(), predecessor: None })
    }

    /// The process that this one takes over from.
    pub(crate) fn predecessor(&mut self) -> Option<Predecessor> {
        self.predecessor.take()
    }

    /// The socket for a setting: one that was passed on, or a new one.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub(crate) fn take(
        &mut self,
        setting: &str,
        address: &SocketAddress,
        mode: u32,
    ) -> anyhow::Result<ListenSocket> {
        let fits = |passed: &Passed| match &passed.configured {
            // With port 0 in the configuration the address differs, and is the same.
            Some(configured) => passed.name == setting && *configured == address.to_string(),
            None => passed.name == setting,
        };
        let is_there = |passed: &Passed| passed.socket.address() == address;
        let found = self.passed.iter().position(fits);
        let found = found.or_else(|| self.passed.iter().position(is_there));
        let Some(at) = found else {
            return ListenSocket::bind(address, mode)
                .with_context(|| format!("cannot listen on {address} (`{setting}`)"));
        };
        let Passed { socket, configured, .. } = self.passed.swap_remove(at);
        if configured.is_none() {
            let address = socket.address();
            info!(setting, %address, "the socket of the service manager is used");
        }
        Ok(socket)
    }

    /// Everything was taken that is needed.
    ///
    /// # Errors
    ///
    /// If the service manager has passed sockets that no setting is for: whoever connects to them
    /// would wait for ever.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let unused = self.passed.iter().filter(|passed| passed.configured.is_none());
        let unused: Vec<String> = unused
            .map(|Passed { name, socket, .. }| format!("`{name}` ({})", socket.address()))
            .collect();
        if unused.is_empty() {
            return Ok(());
        }
        bail!(
            "the service manager has passed sockets that no setting is for: {}. Name them with \
             `FileDescriptorName=listen` or `admin`, or set `listen` or `admin` to their addresses",
            unused.join(", ")
        )
    }
}
