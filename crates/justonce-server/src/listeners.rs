//! The listeners of the gateway: for clients, and for operators.

use anyhow::Context;
use justonce_net::SocketAddress;
use justonce_proxy::{
    ForwardedHeader, ListenSocket, Listener, ListenerSettings, ServerTls, TrustedProxies,
};

use crate::access_log::Refused;
use crate::admin::{Admin, AdminAccess, AdminParts};
use crate::config::{self, Proxies, ProxyHeader, Settings};
use crate::handover::Served;
use crate::identity::tls_files;
use crate::sockets::Sockets;

/// The listeners, not served yet.
pub(crate) struct Listeners {
    /// For clients.
    pub(crate) clients: Listener,
    /// The certificate that they are shown.
    pub(crate) tls: Option<ServerTls>,
    admin: Option<ListenSocket>,
    /// Their sockets, to be handed over.
    pub(crate) served: Vec<Served>,
}

impl Listeners {
    /// Opens the sockets, or takes those that were passed on.
    ///
    /// # Errors
    ///
    /// If an address cannot be bound, or the certificate cannot be used.
    pub(crate) fn open(
        settings: &Settings,
        sockets: &mut Sockets,
        refused: Refused,
    ) -> anyhow::Result<Self> {
        let files = settings.tls.as_ref();
        let tls = files.map(|tls| ServerTls::from_files(&tls_files(tls))).transpose()?;
        let socket = sockets.take("listen", &settings.listen, settings.listen_mode)?;
        let mut served = vec![Served::new("listen", &settings.listen, &socket)?];
        let admin = settings.admin.map(SocketAddress::Tcp);
        let admin = admin.map(|address| {
            // Only files have a mode.
            let socket = sockets.take("admin", &address, 0)?;
            served.push(Served::new("admin", &address, &socket)?);
            anyhow::Ok(socket)
        });
        let admin = admin.transpose()?;
        let clients = Listener::on(socket, limits(settings))
            .context("cannot listen for clients")?
            .with_proxies(proxies(&settings.proxies))
            .with_refusal_observer(refused);
        let clients = match &tls {
            None => clients,
            Some(tls) => clients.with_tls(tls.clone()),
        };
        if let Some(first) = served.first_mut() {
            first.listener = Some(clients.handle());
        }
        Ok(Self { clients, tls, admin, served })
    }

    /// The admin API, if there is to be one.
    ///
    /// # Errors
    ///
    /// If a token cannot be read, or is missing.
    pub(crate) fn admin(
        &mut self,
        settings: &Settings,
        parts: AdminParts,
    ) -> anyhow::Result<Option<Admin>> {
        let Some(socket) = self.admin.take() else { return Ok(None) };
        let admin = Admin::on(socket, &access(settings)?, parts)?;
        if let Some(served) = self.served.last_mut() {
            served.listener = Some(admin.handle());
        }
        Ok(Some(admin))
    }

    /// Where clients connect.
    pub(crate) fn shown(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        match self.clients.address() {
            SocketAddress::Tcp(address) => format!("{scheme}://{address}"),
            unix @ SocketAddress::Unix(_) => unix.to_string(),
        }
    }
}

/// What operators must show, with the tokens read.
fn access(settings: &Settings) -> anyhow::Result<AdminAccess> {
    let read = |token: &Option<config::AdminToken>| {
        token.as_ref().map(config::AdminToken::read).transpose()
    };
    Ok(AdminAccess {
        token: read(&settings.admin_token).context("cannot read the admin token")?,
        callback_token: read(&settings.callback_token)
            .context("cannot read the token for callbacks")?,
        limits: limits(settings),
    })
}

fn limits(settings: &Settings) -> ListenerSettings {
    ListenerSettings {
        max_connections: settings.limits.connections,
        header_timeout: settings.timeouts.header,
        body_timeout: settings.timeouts.body,
        idle_timeout: settings.timeouts.idle,
        max_head_bytes: settings.limits.header_bytes,
        handshake_timeout: ListenerSettings::HANDSHAKE_TIMEOUT,
    }
}

/// The trusted proxies in front.
fn proxies(settings: &Proxies) -> TrustedProxies {
    let header = match settings.header {
        ProxyHeader::XForwarded => ForwardedHeader::XForwarded,
        ProxyHeader::Forwarded => ForwardedHeader::Forwarded,
    };
    let Proxies { trusted, unix, proxy_protocol, .. } = settings;
    TrustedProxies { ranges: trusted.clone(), unix: *unix, header, proxy_protocol: *proxy_protocol }
}
