//! The listener and the upstream side, over real sockets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a failure in a test or its helper is a failed test"
)]

mod grpc_streams;
mod listener_handover;
mod listener_http2;
mod listener_limits;
mod listener_protocols;
mod listener_proxies;
mod listener_smuggling;
mod parts;
mod unix_sockets;
mod upstream_answers;
mod upstream_health;
mod upstream_http2;
mod upstream_http2_life;
mod upstream_http2_places;
mod upstream_outcomes;
mod upstream_pass;
mod upstream_pool;
mod upstream_selection;
mod upstream_tls;
