//! The client side: connections are accepted, kept within limits, and their requests handed to a
//! service.
//!
//! Cleartext HTTP/1.1 and HTTP/2 with prior knowledge, or both over TLS. A connection that asks
//! in a way two readers could understand differently is refused before anybody reads it.

mod body;
mod client;
mod connection;
mod cookies;
mod door;
mod early;
mod gauge;
mod limits;
mod listener;
mod shutdown;
mod tls;
mod watch;
mod wire;

pub use body::{TimedBody, TimedBodyError};
pub use client::{Client, ClientScheme};
pub use door::DoorBody;
pub use early::Informed;
pub use limits::ListenLimits;
pub use listener::{Listener, Served, Serves};
pub use tls::{ServerTls, TlsError};
