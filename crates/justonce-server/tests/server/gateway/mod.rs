//! The real gateway, as a process, between a client and a service that do what the test says.

mod access_log;
mod admin;
mod answers;
mod backup;
mod breaker;
mod check;
mod completer;
mod contract;
mod crash;
mod expire;
mod handover;
mod hostile_contents;
mod metrics;
mod proxied;
mod reload;
mod sagas;
mod shutdown;
mod sockets;
mod stage;
mod stores;
mod traces;
mod unknown;
mod upstream_health;
mod upstream_tls;
mod upstreams;
