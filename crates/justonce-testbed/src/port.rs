//! Ports for private servers.

use std::net::{Ipv4Addr, TcpListener};

use super::ServerError;

/// How many ports are tried: another process may bind a port after it was found free.
const PORTS_TRIED: u32 = 10;

/// A port of the loopback address that is free at this moment. Another process may bind it before
/// it is used, so callers retry with another port.
///
/// # Errors
///
/// If the system has none.
pub fn free_port() -> Result<u16, ServerError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    Ok(address.map_err(|error| ServerError::new("no free port", &error))?.port())
}

/// Starts something on a free port, and tries other ports while that fails.
pub(super) fn on_free_port<T>(
    start: impl Fn(u16) -> Result<T, ServerError>,
) -> Result<T, ServerError> {
    let mut started = start(free_port()?);
    for _ in 1..PORTS_TRIED {
        if started.is_ok() {
            break;
        }
        started = start(free_port()?);
    }
    started
}
