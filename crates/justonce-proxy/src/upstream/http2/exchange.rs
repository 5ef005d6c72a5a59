//! One request to an upstream that speaks HTTP/2.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::{Request, Response, StatusCode};
use http_body::Body;

use super::body::Http2Body;
use super::head::head;
use super::pool::{CROWDED, FULL, Http2Pool, Http2Slot};
use super::sending::Sending;
use crate::informational::InformationalSender;
use crate::timer::LazyTimer;
use crate::upstream::attempt::{Attempt, Phase, RequestOptions, UpstreamResponse, timed_out};
use crate::upstream::error::ProxyError;
use crate::upstream::headers;
use crate::upstream::request_body::{RequestBody, SendProgress};
use crate::upstream::stall::StallTimer;
use crate::upstream::upstream_body::UpstreamBody;

const REFUSED: &str = "the upstream refused the request before it looked at it";
const GONE_AWAY: &str = "the upstream ended the connection before it looked at the request";

/// The result of a request on one connection.
enum Sent {
    Response(Response<UpstreamBody>),
    /// It was not sent, or not looked at because the connection ends.
    GoneAway(Option<Request<RequestBody>>),
    /// The upstream refused this request.
    Refused(Option<Request<RequestBody>>),
    NoForm,
    Failed(ProxyError, &'static str, Phase),
}

/// Sends a request on a connection that is open, and, if that ends before the upstream has looked
/// at the request, on another one.
pub(in crate::upstream) async fn attempt(
    pool: &Http2Pool,
    mut request: Request<RequestBody>,
    options: RequestOptions,
) -> Attempt {
    let mut is_again = false;
    loop {
        let slot = match pool.acquire().await {
            Ok(slot) => slot,
            Err(why @ (FULL | CROWDED)) => return Attempt::NotProcessed(Some(request), why),
            Err(why) => return Attempt::NotReached(request, why),
        };
        request = match send(slot, request, pool.is_tls(), options).await {
            Sent::Response(response) => {
                let (connection, progress) = (None, None);
                return Attempt::Response(UpstreamResponse { response, connection, progress });
            }
            Sent::GoneAway(Some(request)) if !is_again => request,
            Sent::GoneAway(request) => return Attempt::NotProcessed(request, GONE_AWAY),
            Sent::Refused(request) => return Attempt::NotProcessed(request, REFUSED),
            Sent::NoForm => return Attempt::NoForm,
            Sent::Failed(error, detail, phase) => return Attempt::Failed(error, detail, phase),
        };
        is_again = true;
    }
}

async fn send(
    slot: Http2Slot,
    request: Request<RequestBody>,
    is_tls: bool,
    options: RequestOptions,
) -> Sent {
    let Http2Slot { mut sender, guard } = slot;
    let (parts, body) = request.into_parts();
    let Some(head) = head(&parts, is_tls) else { return Sent::NoForm };
    let (response, stream) = match sender.send_request(head, body.is_end_stream()) {
        Ok(sent) => sent,
        // The connection has ended in this moment.
        Err(error) if error.is_go_away() || error.is_io() => {
            return Sent::GoneAway(Some(Request::from_parts(parts, body)));
        }
        Err(error) => {
            tracing::debug!(%error, "a request that HTTP/2 cannot carry");
            return Sent::NoForm;
        }
    };
    drop(sender);
    // From here on the stream ends when this is dropped, and then its place is given back.
    let mut sending = Sending::new(stream, body, Arc::new(guard));
    let informational = parts.extensions.get();
    match respond(response, &mut sending, options, informational).await {
        Some(Ok(response)) => {
            let guard = Arc::clone(sending.guard());
            guard.heard();
            let rest = sending.send_rest(options.read_timeout);
            let (parts, stream) = response.into_parts();
            let body = Http2Body::new(stream, &parts.headers, rest, guard);
            Sent::Response(Response::from_parts(parts, UpstreamBody::Http2(Box::new(body))))
        }
        Some(Err(error)) => {
            tracing::debug!(%error, "an exchange failed");
            let again =
                |sending: Sending| sending.into_body().map(|body| Request::from_parts(parts, body));
            match NotProcessed::of(&error) {
                Some(NotProcessed::GoneAway) => Sent::GoneAway(again(sending)),
                Some(NotProcessed::Refused) => Sent::Refused(again(sending)),
                None => failed(&error, sending.progress()),
            }
        }
        None => {
            let (error, detail) = timed_out(sending.progress());
            Sent::Failed(error, detail, Phase::of(sending.progress()))
        }
    }
}

/// Waits for a response while the request's body is sent; nothing comes back if it takes too long.
async fn respond(
    mut response: ResponseFuture,
    sending: &mut Sending,
    options: RequestOptions,
    informational: Option<&InformationalSender>,
) -> Option<Result<Response<RecvStream>, h2::Error>> {
    let mut stall = StallTimer::new(options.response_timeout);
    let mut timer = LazyTimer::new();
    poll_fn(|cx| {
        // However it ends: the response says why.
        let _ = sending.poll(cx);
        while let Some(client) = informational
            && let Poll::Ready(Some(Ok(head))) = response.poll_informational(cx)
        {
            // The gateway has already answered `Expect`, and HTTP/2 has no other protocols.
            if !matches!(head.status(), StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS) {
                client.send(head.status(), &headers::informational(head.headers()));
            }
        }
        if let Poll::Ready(result) = Pin::new(&mut response).poll(cx) {
            return Poll::Ready(Some(result));
        }
        stall.poll_expired(&mut timer, sending.progress(), cx).map(|()| None)
    })
    .await
}

/// How an upstream says that it did not process a request (RFC 9113, 8.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotProcessed {
    /// It ended the connection: GOAWAY names the last stream that it looked at, and this one comes
    /// after it.
    GoneAway,
    /// It refused the stream.
    Refused,
}

impl NotProcessed {
    fn of(error: &h2::Error) -> Option<Self> {
        if !error.is_remote() {
            return None;
        }
        let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
        match is_refused {
            true => Some(Self::Refused),
            false => error.is_go_away().then_some(Self::GoneAway),
        }
    }
}

fn failed(error: &h2::Error, progress: Option<&SendProgress>) -> Sent {
    if progress.is_some_and(SendProgress::is_broken) {
        let detail = "the request's body broke off";
        return Sent::Failed(ProxyError::RequestBroken, detail, Phase::Sending);
    }
    let detail = match error {
        error if error.is_reset() && error.is_remote() => "the upstream reset the stream",
        error if error.is_reset() || error.is_library() => {
            "the upstream's response is not valid HTTP"
        }
        _ => "the connection to the upstream failed",
    };
    Sent::Failed(ProxyError::Failed, detail, Phase::of(progress))
}
