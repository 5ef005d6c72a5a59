//! The real gateway, as a process, between a client and a service that do what the test says.

mod access_log;
mod admin;
mod answers;
mod backup;
mod breaker;
mod check;
mod client_tls;
mod completer;
mod contract;
mod crash;
mod expire;
mod hostile_contents;
mod metrics;
mod proxied;
mod reload;
mod sagas;
mod shutdown;
mod stage;
mod stores;
mod tokens;
mod traces;
mod unknown;
mod upstream_health;
mod upstream_tls;
mod upstreams;
