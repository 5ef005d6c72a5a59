//! Every setting: its declaration, what its values mean, and what contradicts what.

mod access_log;
mod address;
mod complete;
mod cors;
mod fingerprint;
mod gateway;
mod jwt;
mod key;
mod per_caller;
mod policy;
mod probe;
mod proxies;
mod route;
mod routes;
mod scope;
mod status;
mod store;
mod store_url;
mod tables;
mod template;
mod tls;
mod token;
mod upstreams;
mod values;

pub use access_log::{AccessLog, AccessLogFormat, AccessLogTarget, LoggedQuery, MadeTrace, Trace};
pub use gateway::Settings;
pub(crate) use gateway::settings;
pub use justonce_http::{
    BodyMode, CallerLimits, Cors, FingerprintRule, JsonFields, KeySource, KeySyntax, PathEscapes,
    ResponseEffect, ScopePart, WhenBusy, WhenStoreDown,
};
pub(crate) use jwt::JwtLayer;
pub use jwt::{JwksSource, JwtSettings};
pub use key::{KeyFormat, KeySettings};
pub use probe::{Expected, ProbeHeader, ProbeOutcome, ProbeRequest, ProbeRule, ProbeSettings};
pub use proxies::{Proxies, ProxyHeader};
pub use route::RouteSettings;
pub(crate) use route::RouteTable;
pub(crate) use routes::IdentityLayer;
pub use status::{ResponseSet, StatusRule, StatusSet};
pub use store::{
    EmbeddedSettings, NearCacheSettings, PostgresSettings, RedisSettings, StoreSettings,
};
pub use store_url::{ServerUrl, StoreUrl};
pub(crate) use tables::GatewayLayer;
pub use tables::{Breaker, CompleterLimits, Limits, Log, LogFormat, Timeouts};
pub use template::{Fact, Template};
pub use tls::{ClientCertificates, Tls};
pub use token::{AdminToken, Secret};
pub(crate) use upstreams::UpstreamTable;
pub use upstreams::{
    Balance, HealthSettings, Protocol, UpstreamHost, UpstreamSettings, UpstreamTls,
};
