//! The address of a request's client.

use std::net::IpAddr;

/// Request extension: the address of the client, for [`ScopePart::Address`](crate::ScopePart). The
/// gateway adds it; a service of your own adds what it knows, because a proxy in front has an
/// address too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub IpAddr);
