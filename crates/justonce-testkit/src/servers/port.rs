//! Ports for private servers.

use std::net::{Ipv4Addr, TcpListener};

use super::ServerError;

/// A port of the loopback address that nobody listens on at this moment. Between this answer and
/// its use another process may take it, so whoever starts a server tries again with another one.
///
/// # Errors
///
/// If the system has none.
pub fn free_port() -> Result<u16, ServerError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    Ok(address.map_err(|error| ServerError::new("no free port", &error))?.port())
}
