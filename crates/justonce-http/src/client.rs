//! The address of a request's client.

use std::net::IpAddr;

/// The address of a client, as an extension of its request: for
/// [`ScopePart::Address`](crate::ScopePart), and for the limits of callers that nothing else
/// identifies. For limits, the first 64 bits of an IPv6 address count.
///
/// The gateway sets it. A service of your own sets what it knows, because a proxy in front has an
/// address too. In an axum application it can be set from `ConnectInfo`:
///
/// ```
/// use std::net::SocketAddr;
///
/// use axum::extract::{ConnectInfo, Request};
/// use axum::middleware::Next;
/// use axum::response::Response;
/// use justonce_http::ClientAddress;
///
/// async fn client_address(
///     ConnectInfo(address): ConnectInfo<SocketAddr>,
///     mut request: Request,
///     next: Next,
/// ) -> Response {
///     request.extensions_mut().insert(ClientAddress(address.ip()));
///     next.run(request).await
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub IpAddr);
