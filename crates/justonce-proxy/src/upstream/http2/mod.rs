//! HTTP/2 to one upstream: connections that many requests share, each driven by a task of its own.
//!
//! A request gets a place on a connection before any of it is sent. What waits for a place waits in
//! the [`pool`], never in a connection, so that it is known not to have been sent. Each exchange
//! sends its body in its own task, and ends its stream and gives its place back when it is dropped.

mod body;
mod connection;
mod exchange;
mod head;
mod heartbeat;
mod pool;
mod sending;

pub(super) use body::Http2Body;
pub(super) use exchange::attempt;
pub(super) use head::to_http2;
pub(super) use pool::Http2Pool;
