//! The upstream side: sends requests and brings back responses. Every failure says whether the
//! upstream can have seen the request.
//!
//! A [`Proxy`] is a tower service. Each exchange drives its upstream connection itself, in the
//! task of its client: a request that simply passes spawns no task and wakes none.

mod address;
mod attempt;
mod breaker;
mod connection;
mod error;
mod exchange;
mod exchange_time;
mod headers;
mod health;
mod http2;
mod pool;
mod proxy;
mod request_body;
mod response_body;
mod selection;
mod settings;
mod stall;
mod stream;
mod tls;
mod upgrade;
mod upstream_body;
mod upstreams;

pub use address::{AddressError, UpstreamAddress};
pub use breaker::{BreakerSettings, BreakerState};
pub use error::{ProxyError, error_response};
pub use exchange_time::ExchangeTime;
pub use headers::{add_forwarded, make_forwarded};
pub use health::{CheckResult, HealthCheck};
pub use proxy::Proxy;
pub use response_body::{ProxyBody, ProxyBodyError};
pub use selection::Balance;
pub use settings::{
    HostHeader, MAX_RESPONSE_HEADERS, Protocol, ProxySettings, ProxyTimeouts, ResponseTimeout,
    SettingsError,
};
pub use tls::{ClientCertificate, UpstreamRoots, UpstreamTls};
pub use upstreams::UpstreamStatus;
