//! The upstream side: requests go out, answers come back, and every trouble on the way is told
//! apart by the one question that matters: can the upstream have seen the request?
//!
//! A [`Proxy`] is a tower service. Each exchange drives its upstream connection itself, in the
//! task of its client: no task is spawned and none is woken for a request that simply passes.

mod address;
mod body;
mod breaker;
mod connection;
mod exchange;
mod forward;
mod pool;
mod service;
mod settings;
mod stream;
mod timer;
mod tls;
mod trouble;
mod upgrade;
mod upstreams;

pub use address::{AddressError, UpstreamAddress};
pub use body::{BoxError, ProxyBody, ProxyBodyError};
pub use breaker::{Breaker, BreakerSettings, BreakerState, Change};
pub use service::Proxy;
pub use settings::{
    HostHeader, MAX_RESPONSE_HEADERS, ProxySettings, ResponseTimeout, SettingsError,
};
pub use trouble::{Trouble, trouble_response};
pub use upstreams::{BreakerEvent, UpstreamStatus};

pub(crate) use forward::{as_forwarded, introduced};
pub(crate) use timer::LazyTimer;
