//! A reverse proxy that knows, for every failure, whether the upstream can have seen the request.
//!
//! A [`Listener`] accepts client connections and hands their requests to a tower service. A
//! [`Proxy`] is such a service: it sends requests to one or more upstreams. The gateway puts the
//! idempotency layer between the two.
//!
//! ```no_run
//! use std::time::Duration;
//! use justonce_proxy::{
//!     Listener, ListenerSettings, Proxy, ProxySettings, ProxyTimeouts, UpstreamAddress,
//! };
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = Listener::bind(
//!     "127.0.0.1:8080".parse()?,
//!     ListenerSettings {
//!         max_connections: 1_000,
//!         header_timeout: Duration::from_secs(10),
//!         idle_timeout: Duration::from_secs(60),
//!         body_timeout: Duration::from_secs(30),
//!         max_head_bytes: 64 * 1024,
//!         handshake_timeout: ListenerSettings::HANDSHAKE_TIMEOUT,
//!     },
//! )?;
//! let timeouts = ProxyTimeouts {
//!     connect: Duration::from_secs(2),
//!     response: Duration::from_secs(30),
//!     idle: Duration::from_secs(4),
//! };
//! let upstream = UpstreamAddress::parse("http://127.0.0.1:9000")?;
//! let proxy = Proxy::new(ProxySettings::new([upstream], timeouts))?;
//! let shutdown = std::future::pending();
//! listener.serve(move || proxy.clone(), shutdown, Duration::from_secs(30)).await;
//! # Ok(())
//! # }
//! ```

mod abort;
mod client;
mod forwarded;
mod informational;
mod listener;
pub mod metrics;
mod timer;
mod upstream;

pub use client::{Client, ClientScheme};
pub use forwarded::{ForwardedHeader, TrustedProxies};
pub use informational::InformationalSender;
pub use listener::{
    Askers, ConnectionCounts, ListenSocket, Listener, ListenerHandle, ListenerService,
    ListenerSettings, ListenerStats, RefusalObserver, RefusalReason, RefusedRequest, ServerTls,
    ServerTlsError, ServerTlsFiles, TimeoutBody, TimeoutBodyError,
};
pub use upstream::{
    AddressError, Balance, BreakerSettings, BreakerState, CheckResult, ClientCertificate,
    ExchangeTime, HealthCheck, HostHeader, MAX_RESPONSE_HEADERS, Protocol, Proxy, ProxyBody,
    ProxyBodyError, ProxyError, ProxySettings, ProxyTimeouts, ResponseTimeout, SettingsError,
    UpstreamAddress, UpstreamRoots, UpstreamStatus, UpstreamTls, add_forwarded, error_response,
    make_forwarded,
};
