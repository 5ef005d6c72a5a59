//! A connection that was accepted, until it is known whose it is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};

use super::certificate;
use super::connection::{ConnectionServer, Origin};
use super::proxy_protocol::{self, Source};
use super::service::ListenerService;
use super::tls::ServerTls;
use super::tracker::{Asker, ConnectionGuard};
use crate::client::{Client, ClientScheme};
use crate::metrics::Handshake;

/// Why a connection is closed that has not said whose it is: there is no request to finish.
const STOPPING: &str = "the gateway stops";

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Peer {
    Tcp(SocketAddr),
    /// It has no address.
    Unix,
}

/// A connection that was accepted.
pub(super) struct Accepted<T, S> {
    pub(super) server: Arc<ConnectionServer>,
    pub(super) stream: T,
    pub(super) peer: Peer,
    pub(super) service: S,
    pub(super) guard: ConnectionGuard,
    pub(super) asker: Asker,
}

impl Peer {
    fn client(self, scheme: ClientScheme) -> Client {
        match self {
            Self::Tcp(address) => Client::new(address, scheme),
            Self::Unix => Client::local(scheme),
        }
    }

    /// Somebody behind the proxy that has connected.
    fn hidden(self, scheme: ClientScheme) -> Client {
        match self {
            Self::Tcp(address) => Client::hidden_behind(address, scheme),
            Self::Unix => Client::local(scheme),
        }
    }
}

impl<T, S> Accepted<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: ListenerService,
{
    /// Whose it is without a PROXY protocol header.
    pub(super) fn direct(&self, scheme: ClientScheme) -> Origin {
        let client = self.peer.client(scheme);
        // Most listeners trust nobody, and then no request asks.
        let is_trusted = self.server.proxies.trust(&client);
        Origin { client, is_trusted }
    }

    pub(super) async fn serve(self, from: Origin) {
        let Self { server, stream, service, guard, asker, .. } = self;
        server.serve(stream, None, (from, None), service, (guard, asker)).await;
    }

    pub(super) async fn serve_tls(self, tls: ServerTls, from: Origin) {
        let Self { server, stream, service, guard, asker, .. } = self;
        let handshake = timeout(server.settings.handshake_timeout, tls.acceptor().accept(stream));
        let stream = match handshake.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tls.count(Handshake::of_error(&error));
                tracing::debug!(%error, "a TLS handshake failed");
                return;
            }
            Err(_) => return tls.count(Handshake::Timeout),
        };
        tls.count(Handshake::Done);
        let session = stream.get_ref().1;
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        let from = (from, certificate::client(session.peer_certificates()));
        server.serve(stream, Some(is_http2), from, service, (guard, asker)).await;
    }

    /// Serves a connection that must come from a trusted proxy and say whose it is.
    pub(super) async fn serve_proxied(mut self, tls: Option<ServerTls>) {
        let source = match self.source().await {
            Ok(source) => source,
            Err(why) => {
                self.server.tracker.totals.bad_source.fetch_add(1, Ordering::Relaxed);
                if let Some(left_out) = self.server.refusals.admit(Instant::now()) {
                    let peer = self.peer.client(ClientScheme::Http).address();
                    let peer = peer.map(tracing::field::display);
                    let message = "a connection was closed: PROXY protocol";
                    tracing::warn!(peer, %why, left_out, "{message}");
                }
                return;
            }
        };
        let scheme = if tls.is_some() { ClientScheme::Https } else { ClientScheme::Http };
        let from = self.reported(source, scheme);
        match tls {
            None => self.serve(from).await,
            Some(tls) => self.serve_tls(tls, from).await,
        }
    }

    fn reported(&self, source: Source, of_us: ClientScheme) -> Origin {
        let proxies = &self.server.proxies;
        match source {
            Source::Client(address, tls) => {
                let scheme = if tls == Some(true) { ClientScheme::Https } else { of_us };
                let client = Client::new(address, scheme);
                let is_trusted = proxies.trust(&client);
                Origin { client, is_trusted }
            }
            Source::Proxy => self.direct(of_us),
            Source::Unknown => Origin { client: self.peer.hidden(of_us), is_trusted: false },
        }
    }

    /// Who is behind the proxy that has connected.
    async fn source(&mut self) -> Result<Source, String> {
        if !self.direct(ClientScheme::Http).is_trusted {
            return Err("it comes from no trusted proxy".to_owned());
        }
        let tracker = &self.server.tracker;
        let limit = self.server.settings.header_timeout;
        let read = timeout(limit, proxy_protocol::read(&mut self.stream));
        let read = tracker.unless_too_late(read).await;
        match read {
            None => Err(STOPPING.to_owned()),
            Some(Err(_)) => Err("its header did not come in time".to_owned()),
            Some(Ok(read)) => read.map_err(|error| error.to_string()),
        }
    }
}
