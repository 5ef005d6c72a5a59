//! One exchange: a request, and its response or a precise error.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use justonce_http::{Cause, Unframed, UpstreamName};
use justonce_net::refused_our_certificate;
use tokio::task::coop::unconstrained;

use super::attempt::{Attempt, CLOSED, Phase, RequestOptions, UpstreamResponse, timed_out};
use super::breaker::RequestEnd;
use super::connection::Connection;
use super::error::{ProxyError, error_response};
use super::exchange_time::ExchangeTime;
use super::request_body::{RequestBody, SendProgress};
use super::response_body::ProxyBody;
use super::settings::{HostHeader, ResponseTimeout};
use super::stall::StallTimer;
use super::upgrade::{self, ClientUpgrade};
use super::upstream_body::UpstreamBody;
use super::upstreams::{ActiveRequest, PooledConnection, Upstream, Upstreams};
use super::{headers, http2};
use crate::informational::InformationalSender;

const NO_UPSTREAM: &str = "the circuit breakers of all upstreams are open";
const REFUSED: &str = "the upstream refused the gateway's certificate, or that there is none";
const NO_FORM: &str = "HTTP/2 has no form for this request";

pub(super) async fn exchange(
    upstreams: &Arc<Upstreams>,
    mut request: Request<RequestBody>,
) -> Response<ProxyBody> {
    if *request.method() == Method::CONNECT {
        let mut refusal = Response::new(ProxyBody::text("tunnels are not offered here"));
        *refusal.status_mut() = StatusCode::NOT_IMPLEMENTED;
        return refusal;
    }
    let settings = &upstreams.settings;
    // Without a response it ends here.
    let running = request.extensions_mut().remove::<ExchangeTime>().map(ExchangeTime::start);
    let own = request.extensions_mut().remove::<ResponseTimeout>().map(|own| own.0);
    forward_informational(&mut request);
    let client = headers::prepare(&mut request, settings.via)
        .map(|client| ClientUpgrade { client, abort: request.extensions_mut().remove() });
    let requested = upstreams.any_base().then(|| request.uri().path_and_query().cloned());
    let options = RequestOptions {
        response_timeout: own.unwrap_or(settings.timeouts.response),
        // A request with a long response timeout gets as long for pauses inside the response.
        read_timeout: own.map_or(settings.read_timeout, |own| own.max(settings.read_timeout)),
        upgrade: client.is_some(),
    };

    let (mut why, mut at) = (NO_UPSTREAM, None);
    let mut tried = Vec::new();
    while let Some(mut active) = upstreams.next(&mut tried) {
        address(&settings.host, active.upstream(), requested.as_ref(), &mut request);
        let attempted = match &active.upstream().http2 {
            None => attempt(active.upstream(), request, options).await,
            Some(pool) => Box::pin(http2::attempt(pool, request, options)).await,
        };
        match attempted {
            Attempt::Response(response) => {
                let response = responded(upstreams, active, response, options, client);
                return response.map(|body| body.timed(running));
            }
            Attempt::Failed(error, detail, phase) => {
                let by = active.upstream().name.clone();
                active.end(request_end(error));
                return failed_response(error, Some(by), phase, detail);
            }
            Attempt::NoForm => {
                at = Some(active.upstream().name.clone());
                active.end(RequestEnd::Abandoned);
                return failed_response(ProxyError::NotReached, at, Phase::Connect, NO_FORM);
            }
            Attempt::NotReached(unsent, detail) => {
                at = Some(active.upstream().name.clone());
                active.end(RequestEnd::NotReached);
                (request, why) = (unsent, detail);
                if upstreams.count() == 1 {
                    break;
                }
            }
            Attempt::NotProcessed(unsent, detail) => {
                at = Some(active.upstream().name.clone());
                // It is alive, and told us so.
                active.end(RequestEnd::Abandoned);
                why = detail;
                let Some(unsent) = unsent.filter(|_| upstreams.count() > 1) else { break };
                request = unsent;
            }
        }
    }
    failed_response(ProxyError::NotReached, at, Phase::Connect, why)
}

/// The response for a failed exchange, with what operators need to know and clients must not see.
fn failed_response(
    error: ProxyError,
    by: Option<UpstreamName>,
    phase: Phase,
    detail: &'static str,
) -> Response<ProxyBody> {
    let mut response = error_response(error, detail);
    let phase = phase.as_str();
    let upstream = by.as_ref().map(|by| format!(" upstream={}", by.0)).unwrap_or_default();
    let extensions = response.extensions_mut();
    extensions.insert(Cause::new(format!("phase={phase}{upstream} error={detail}")));
    if let Some(by) = by {
        extensions.insert(by);
    }
    response
}

/// Clients that understand informational responses get those of the upstream, except 100: the
/// gateway has already answered `Expect`.
fn forward_informational(request: &mut Request<RequestBody>) {
    let Some(sender) = request.extensions().get::<InformationalSender>().cloned() else { return };
    hyper::ext::on_informational(request, move |response| {
        if response.status() != StatusCode::CONTINUE {
            sender.send(response.status(), &headers::informational(response.headers()));
        }
    });
}

/// What a failure says about the upstream.
const fn request_end(error: ProxyError) -> RequestEnd {
    match error {
        ProxyError::NotReached => RequestEnd::NotReached,
        ProxyError::Failed | ProxyError::HeadTooLarge | ProxyError::TimedOut => RequestEnd::Failed,
        ProxyError::RequestBroken => RequestEnd::Abandoned,
    }
}

/// Writes the host and the base path of an upstream into a request.
fn address(
    host: &HostHeader,
    upstream: &Upstream,
    requested: Option<&Option<PathAndQuery>>,
    request: &mut Request<RequestBody>,
) {
    if let Some(requested) = requested
        && let Some(target) = upstream.address.target(requested.as_ref())
    {
        *request.uri_mut() = target;
    }
    let headers = request.headers_mut();
    let is_missing = headers.get(http::header::HOST).is_none_or(|host| host.is_empty());
    if (*host != HostHeader::Client || is_missing)
        && let Some(host) = &upstream.host
    {
        headers.insert(http::header::HOST, host.clone());
    }
}

/// Sends a request to one upstream: on an idle connection, and, if that turns out to be closed
/// before anything was sent, on a fresh one.
async fn attempt(
    upstream: &Upstream,
    mut request: Request<RequestBody>,
    options: RequestOptions,
) -> Attempt {
    let mut fresh = false;
    loop {
        let mut connection = match upstream.pool.acquire(fresh).await {
            Ok(connection) => connection,
            Err(why) => return Attempt::NotReached(request, why),
        };
        let progress = request.body().progress();
        match send(&mut connection, request, progress.as_deref(), options).await {
            Sent::Response(response) => {
                let response = response.map(UpstreamBody::Http1);
                let connection = Some(connection);
                return Attempt::Response(UpstreamResponse { response, connection, progress });
            }
            Sent::Unsent(unsent) if fresh => return Attempt::NotReached(*unsent, CLOSED),
            Sent::Unsent(unsent) => (request, fresh) = (*unsent, true),
            Sent::Failed(error, detail) => {
                return Attempt::Failed(error, detail, Phase::of(progress.as_deref()));
            }
        }
    }
}

/// The result of a request on one connection.
enum Sent {
    Response(Response<Incoming>),
    Unsent(Box<Request<RequestBody>>),
    Failed(ProxyError, &'static str),
}

async fn send(
    connection: &mut Connection,
    request: Request<RequestBody>,
    progress: Option<&SendProgress>,
    options: RequestOptions,
) -> Sent {
    connection.begin();
    // The response arrives only while this task drives the connection: it is polled without a
    // waker, so the task's budget must not defer it.
    let mut response = pin!(unconstrained(connection.sender().try_send_request(request)));
    let mut stall = StallTimer::new(options.response_timeout);
    let result = poll_fn(|cx| {
        match options.upgrade {
            false => connection.drive(cx),
            true => connection.drive_towards_upgrade(cx),
        }
        let mut unwoken = Context::from_waker(Waker::noop());
        let mut polled = response.as_mut().poll(&mut unwoken);
        if polled.is_pending() && connection.has_ended() {
            // No response arrives any more, and a request that was not sent must come back.
            connection.close();
            polled = response.as_mut().poll(cx);
        }
        if let Poll::Ready(result) = polled {
            return Poll::Ready(Some(result));
        }
        stall.poll_expired(connection.timer(), progress, cx).map(|()| None)
    });
    match result.await {
        Some(Ok(response)) => Sent::Response(response),
        Some(Err(mut error)) => match error.take_message() {
            Some(unsent) => Sent::Unsent(Box::new(unsent)),
            None => {
                let seen = Seen { wrote: connection.wrote(), read: connection.has_read() };
                failed(&error.into_error(), progress, seen)
            }
        },
        None => {
            let (error, detail) = timed_out(progress);
            Sent::Failed(error, detail)
        }
    }
}

/// What the socket of an exchange has seen.
#[derive(Clone, Copy)]
struct Seen {
    /// Something of the exchange may have left this process.
    wrote: bool,
    /// The upstream has sent something, ever.
    read: bool,
}

fn failed(error: &hyper::Error, progress: Option<&SendProgress>, seen: Seen) -> Sent {
    tracing::debug!(%error, source = ?std::error::Error::source(error), "an exchange failed");
    if progress.is_some_and(SendProgress::is_broken) {
        return Sent::Failed(ProxyError::RequestBroken, "the request's body broke off");
    }
    if !seen.wrote {
        // The first write failed.
        return Sent::Failed(ProxyError::NotReached, CLOSED);
    }
    if !seen.read && refused_our_certificate(error) {
        return Sent::Failed(ProxyError::NotReached, REFUSED);
    }
    if error.is_parse_too_large() {
        return Sent::Failed(
            ProxyError::HeadTooLarge,
            "the head of the upstream's response is too large",
        );
    }
    let detail = match error {
        error if error.is_parse() => "the upstream's response is not valid HTTP",
        error if error.is_incomplete_message() => "the upstream closed the connection",
        _ => "the connection to the upstream failed",
    };
    Sent::Failed(ProxyError::Failed, detail)
}

fn responded(
    upstreams: &Upstreams,
    mut active: ActiveRequest,
    response: UpstreamResponse,
    options: RequestOptions,
    client: Option<ClientUpgrade>,
) -> Response<ProxyBody> {
    let settings = &upstreams.settings;
    let UpstreamResponse { mut response, mut connection, progress } = response;
    if let Some(connection) = &mut connection {
        connection.announce(headers::announced_idle_timeout(response.headers()));
    }
    let status = response.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        let ended = connection.filter(|connection| connection.has_ended());
        let (Some(client), Some(connection)) = (client, ended) else {
            active.end(RequestEnd::Failed);
            let detail = "the upstream switched protocols unasked";
            return error_response(ProxyError::Failed, detail);
        };
        active.end(RequestEnd::Succeeded);
        upgrade::splice(client, *connection, active);
        return response.map(|_| ProxyBody::empty());
    }
    response.extensions_mut().insert(active.upstream().name.clone());
    let failed = settings.gateway_errors_count && matches!(status.as_u16(), 502..=504);
    active.end(if failed { RequestEnd::Failed } else { RequestEnd::Succeeded });
    if headers::is_unframed(&response) {
        response.extensions_mut().insert(Unframed);
    }
    headers::clean_response(&mut response, settings.via);
    let pooled = match (progress, connection) {
        (Some(progress), Some(connection)) if !progress.is_finished() => {
            let upstream = Arc::clone(active.upstream());
            tokio::spawn(send_rest(upstream, connection, progress, options.read_timeout));
            PooledConnection::new(active, None)
        }
        (_, connection) => PooledConnection::new(active, connection),
    };
    response.map(|incoming| ProxyBody::upstream(incoming, pooled, options.read_timeout))
}

/// Sends the rest of a body whose response has already begun. A client that reads the response only
/// after its own last byte would otherwise wait for ever.
async fn send_rest(
    upstream: Arc<Upstream>,
    mut connection: Box<Connection>,
    progress: Arc<SendProgress>,
    read_timeout: Duration,
) {
    let mut stall = StallTimer::new(read_timeout);
    let ended = poll_fn(|cx| {
        connection.drive(cx);
        if connection.has_ended() || connection.is_reusable() {
            return Poll::Ready(true);
        }
        if progress.is_finished() {
            // From here on the reader of the response has the timeout.
            return Poll::Pending;
        }
        stall.poll_expired(connection.timer(), Some(&progress), cx).map(|()| false)
    });
    if ended.await {
        upstream.pool.give_back(connection);
    }
}
