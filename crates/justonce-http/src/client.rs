//! The address of a request's client.

use std::net::IpAddr;

/// Request extension: the address of the client. With [`ScopePart::Address`](crate::ScopePart) it
/// is the caller, and callers that nothing else identifies are told apart by it when they are
/// limited: then of an IPv6 address the first 64 bits count.
///
/// The gateway sets it. In an axum application it can be set from `ConnectInfo`, if no proxy stands
/// in front, whose address that would be:
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
