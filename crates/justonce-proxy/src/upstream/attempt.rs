//! One attempt at one upstream: what is sent how, and what came of it.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};

use super::connection::Connection;
use super::error::ProxyError;
use super::request_body::{RequestBody, SendProgress};
use super::upstream_body::UpstreamBody;

/// The upstream has closed the connection that a request was to be sent on.
pub(super) const CLOSED: &str = "the upstream closed the connection before the request was sent";

/// How one request is sent.
#[derive(Clone, Copy)]
pub(super) struct RequestOptions {
    pub(super) response_timeout: Duration,
    pub(super) read_timeout: Duration,
    pub(super) upgrade: bool,
}

/// The result of a request at one upstream.
pub(super) enum Attempt {
    Response(UpstreamResponse),
    /// Not a byte of it was sent: the request, to be sent to another upstream, and why.
    NotReached(Request<RequestBody>, &'static str),
    /// The upstream said that it did not process it, or had no room for it: the request, if it can
    /// be sent to another one, and why. The upstream is alive.
    NotProcessed(Option<Request<RequestBody>>, &'static str),
    /// It cannot be sent to such an upstream, which says nothing about that.
    NoForm,
    Failed(ProxyError, &'static str, Phase),
}

/// How far an exchange had come when it failed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Connect,
    Sending,
    Waiting,
}

impl Phase {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Sending => "sending",
            Self::Waiting => "waiting",
        }
    }

    /// The phase after the connection was there.
    pub(super) fn of(progress: Option<&SendProgress>) -> Self {
        let is_sent = progress.is_none_or(SendProgress::is_finished);
        if is_sent { Self::Waiting } else { Self::Sending }
    }
}

/// A response, and the connection that its body comes from.
pub(super) struct UpstreamResponse {
    pub(super) response: Response<UpstreamBody>,
    // Nothing with HTTP/2: another task drives it.
    pub(super) connection: Option<Box<Connection>>,
    // Nothing if the response's body takes care of the rest of the request's.
    pub(super) progress: Option<Arc<SendProgress>>,
}

/// Why no response came in time.
pub(super) fn timed_out(progress: Option<&SendProgress>) -> (ProxyError, &'static str) {
    if progress.is_some_and(SendProgress::is_starved) {
        return (ProxyError::RequestBroken, "the request body timed out");
    }
    (ProxyError::TimedOut, "the upstream did not answer in time")
}
