//! The client side: accepts connections, limits them, and hands their requests to a service.
//!
//! Cleartext HTTP/1.1 and HTTP/2 with prior knowledge, or both over TLS. Requests that two HTTP
//! implementations could read differently are refused before they are parsed.

mod accept;
mod accepted;
mod activity;
mod certificate;
mod connection;
mod cookies;
mod framing;
mod handle;
mod io;
mod proxy_protocol;
mod refused;
mod request_body;
mod service;
mod settings;
mod socket;
mod socket_file;
mod throttle;
mod tls;
mod tracker;

pub use accept::{ConnectionCounts, Listener};
pub use handle::{Askers, ListenerHandle, ListenerStats};
pub use refused::{RefusalObserver, RefusalReason, RefusedRequest};
pub use request_body::{TimeoutBody, TimeoutBodyError};
pub use service::ListenerService;
pub use settings::ListenerSettings;
pub use socket::ListenSocket;
pub use tls::{ServerTls, ServerTlsError, ServerTlsFiles};
