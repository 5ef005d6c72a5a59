//! Accepting connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use tower::Service;

use super::connection::House;
use super::limits::{ACCEPT_PAUSE, BACKLOG};
use super::shutdown::{Crowd, Permit};
use super::{Client, ClientScheme, ListenLimits, ServerTls, TimedBody};
use crate::proxy::BoxError;

/// How long nothing more is said about a trouble with accepting.
const QUIET: Duration = Duration::from_secs(1);

/// A service that a listener can hand requests to. Implemented for all that fit.
pub trait Serves:
    Service<
        Request<TimedBody>,
        Response = Response<Self::Answer>,
        Error: Into<BoxError>,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static
{
    /// The body of its answers.
    type Answer: Body<Data: Send, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B> Serves for S
where
    S: Service<Request<TimedBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Answer = B;
}

/// An address that clients can connect to.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    limits: ListenLimits,
    tls: Option<ServerTls>,
}

/// What a listener did, when it is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections closed at once because there were too many.
    pub refused: u64,
    /// Connections that were still there when the grace was over.
    pub dropped: usize,
}

impl Listener {
    /// Listens on an address; port 0 is any free one.
    ///
    /// # Errors
    ///
    /// If the address cannot be had.
    pub fn bind(address: SocketAddr, limits: ListenLimits) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            // `[::]` is every address, also those of IPv4.
            socket.set_only_v6(false)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from_std(socket.into())?;
        Ok(Self { listener, limits, tls: None })
    }

    /// Speaks TLS, and nothing else.
    #[must_use]
    pub fn with_tls(mut self, tls: ServerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The address it listens on.
    ///
    /// # Errors
    ///
    /// If the system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` is done: then accepts nothing more, tells the connections to
    /// finish, waits for them as long as `grace`, and drops what remains.
    ///
    /// `service` is asked once for every connection.
    pub async fn serve<S: Serves>(
        self,
        service: impl Fn() -> S,
        shutdown: impl Future<Output = ()>,
        grace: Duration,
    ) -> Served {
        let crowd = Arc::<Crowd>::default();
        let house = Arc::new(House::new(self.limits, Arc::clone(&crowd)));
        let mut served = Served::default();
        tokio::select! {
            () = shutdown => {}
            () = self.accept(&house, service, &mut served) => {}
        }
        drop(self.listener);
        crowd.finish();
        if timeout(grace, crowd.empty()).await.is_err() {
            served.dropped = crowd.open();
            crowd.end();
        }
        served
    }

    async fn accept<S: Serves>(
        &self,
        house: &Arc<House>,
        service: impl Fn() -> S,
        served: &mut Served,
    ) {
        let mut said: Option<Instant> = None;
        loop {
            let (stream, address) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                // The client has gone already.
                Err(error) if is_of_one_connection(&error) => continue,
                // No room for another connection: those that are open will make some.
                Err(error) => {
                    if said.is_none_or(|said| said.elapsed() >= QUIET) {
                        tracing::error!(%error, "no connection can be accepted");
                        said = Some(Instant::now());
                    }
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            served.accepted += 1;
            let Some(permit) = house.crowd.enter(self.limits.max_connections) else {
                served.refused += 1;
                continue;
            };
            let house = Arc::clone(house);
            match &self.tls {
                None => {
                    let client = Client::new(address, ClientScheme::Http);
                    let service = service();
                    tokio::spawn(async move {
                        if stream.set_nodelay(true).is_ok() {
                            house.serve(stream, None, client, service, permit).await;
                        }
                    });
                }
                Some(tls) => {
                    let client = Client::new(address, ClientScheme::Https);
                    tokio::spawn(through_tls(
                        tls.clone(),
                        stream,
                        house,
                        client,
                        service(),
                        permit,
                    ));
                }
            }
        }
    }
}

async fn through_tls<S: Serves>(
    tls: ServerTls,
    stream: TcpStream,
    house: Arc<House>,
    client: Client,
    service: S,
    permit: Permit,
) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let handshake = timeout(house.limits.handshake_timeout, tls.acceptor().accept(stream));
    let stream = match handshake.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    house.serve(stream, Some(is_http2), client, service, permit).await;
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}
