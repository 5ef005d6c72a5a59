//! Health checks: what is asked, what the answers mean, and the state of one upstream.

use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::timeout;

use super::address::UpstreamAddress;
use super::connection::Connector;
use super::http2::to_http2;
use super::settings::Protocol;

const SLOW: &str = "it did not answer in time";
const BROKEN: &str = "it closed the connection without an answer";
const OTHER_STATUS: &str = "it answered with another status";
const NO_TARGET: &str = "the path cannot be asked for";

/// How upstreams are asked whether they are healthy, and what the answers mean.
///
/// ```
/// use justonce_proxy::HealthCheck;
///
/// // The default: 200 to 299 within two seconds; three failures in a row, two successes.
/// let check = HealthCheck::new("/healthz".parse()?);
/// assert!(check.unhealthy_after == 3 && check.healthy_after == 2);
/// // A service that has no page of its own for that, and answers 404.
/// let custom = HealthCheck { expected: vec![404..=404], ..check };
/// # Ok::<(), http::uri::InvalidUri>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is asked for, with GET.
    pub path: PathAndQuery,
    /// How long it may take, from connecting to the head of the answer.
    pub timeout: Duration,
    /// After how many failures in a row an upstream is unhealthy.
    pub unhealthy_after: u32,
    /// After how many successes in a row it is healthy again.
    pub healthy_after: u32,
    /// The statuses of a success.
    pub expected: Vec<RangeInclusive<u16>>,
}

impl HealthCheck {
    /// A check that expects 200 to 299 within two seconds.
    #[must_use]
    pub fn new(path: PathAndQuery) -> Self {
        Self {
            path,
            timeout: Duration::from_secs(2),
            unhealthy_after: 3,
            healthy_after: 2,
            expected: vec![200..=299],
        }
    }

    /// Asks an upstream, on a connection of its own: a pool that is used up says nothing about
    /// health. Returns why it failed.
    pub(super) async fn ask(
        &self,
        connector: &Connector,
        host: Option<&HeaderValue>,
    ) -> Result<(), &'static str> {
        let request = self.request(&connector.address, host).ok_or(NO_TARGET)?;
        let status =
            timeout(self.timeout, status(connector, request)).await.map_err(|_| SLOW)??;
        let fits = self.expected.iter().any(|range| range.contains(&status.as_u16()));
        if fits { Ok(()) } else { Err(OTHER_STATUS) }
    }

    fn request(
        &self,
        address: &UpstreamAddress,
        host: Option<&HeaderValue>,
    ) -> Option<Request<Empty<Bytes>>> {
        let request = Request::get(address.target(Some(&self.path))?)
            .header(HOST, host?)
            .header(USER_AGENT, HeaderValue::from_static("justonce"))
            .header(CONNECTION, HeaderValue::from_static("close"));
        request.body(Empty::new()).ok()
    }
}

/// The status that an upstream answers with.
async fn status(
    connector: &Connector,
    mut request: Request<Empty<Bytes>>,
) -> Result<StatusCode, &'static str> {
    let stream = connector.open().await.map_err(|(what, _)| what)?;
    let io = TokioIo::new(stream);
    match connector.protocol {
        Protocol::Http1 => {
            let (mut sender, connection) = http1::handshake(io).await.map_err(|_| BROKEN)?;
            driven(connection, sender.send_request(request)).await
        }
        Protocol::Http2 => {
            if !to_http2(&mut request, connector.tls.is_some()) {
                return Err(NO_TARGET);
            }
            let handshake = http2::handshake(TokioExecutor::new(), io).await;
            let (mut sender, connection) = handshake.map_err(|_| BROKEN)?;
            driven(connection, sender.send_request(request)).await
        }
    }
}

/// The status of a response that comes on this connection.
async fn driven(
    connection: impl Future,
    response: impl Future<Output = hyper::Result<Response<Incoming>>>,
) -> Result<StatusCode, &'static str> {
    let mut connection = Some(Box::pin(connection));
    let mut response = pin!(response);
    let response = poll_fn(|cx| {
        if connection.as_mut().is_some_and(|connection| connection.as_mut().poll(cx).is_ready()) {
            // A request that waits in it would wait for ever.
            connection = None;
        }
        response.as_mut().poll(cx)
    });
    response.await.map(|response| response.status()).map_err(|_| BROKEN)
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// The upstream.
    pub upstream: UpstreamAddress,
    /// Why it failed; nothing if it did not.
    pub failure: Option<&'static str>,
}

/// Whether an upstream is healthy. One that was never checked is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Health {
    is_healthy: bool,
    /// How many results in a row said the opposite.
    opposite: u32,
}

impl Default for Health {
    fn default() -> Self {
        Self { is_healthy: true, opposite: 0 }
    }
}

impl Health {
    /// Counts a result. Returns the new state if it changed.
    pub(super) fn record(&mut self, has_passed: bool, check: &HealthCheck) -> Option<bool> {
        if has_passed == self.is_healthy {
            self.opposite = 0;
            return None;
        }
        self.opposite = self.opposite.saturating_add(1);
        let needed = if has_passed { check.healthy_after } else { check.unhealthy_after };
        if self.opposite < needed {
            return None;
        }
        *self = Self { is_healthy: has_passed, opposite: 0 };
        Some(has_passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_results_in_a_row_change_the_state() {
        let check = HealthCheck::new("/".parse().unwrap());
        let mut health = Health::default();
        let mut record = |results: &str| {
            let results = results.chars().map(|result| health.record(result == '+', &check));
            results.last().unwrap()
        };
        assert_eq!(record("--"), None);
        assert_eq!(record("+--"), None, "not in a row");
        assert_eq!(record("-"), Some(false));
        assert_eq!(record("--+-+"), None);
        assert_eq!(record("+"), Some(true));
        assert_eq!(record("+++--"), None);
        assert_eq!(record("-"), Some(false));
    }
}
