//! One request, one answer, or one precise trouble.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use justonce::http::{AnsweredBy, Cause, Unframed};
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use super::body::{Progress, SendBody};
use super::breaker::Ended;
use super::connection::Connection;
use super::service::Shared;
use super::upstreams::Turn;
use super::{HostHeader, ProxyBody, ResponseTimeout, Trouble, forward, trouble_response, upgrade};
use crate::listen::Informed;

const NOWHERE: &str = "every upstream is left alone for now";
const GONE: &str = "the upstream closed the connection before the request was sent";

/// What became of a request at one upstream.
enum Attempt {
    Answered(Answer),
    /// Not a byte of it was sent: here it is again, and why.
    NotReached(Request<SendBody>, &'static str),
    Trouble(Trouble, &'static str, Phase),
}

/// How far an exchange had come when it failed.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Connect,
    Sending,
    Waiting,
}

impl Phase {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Sending => "sending",
            Self::Waiting => "waiting",
        }
    }
}

struct Answer {
    response: Response<Incoming>,
    connection: Box<Connection>,
    progress: Option<Arc<Progress>>,
}

/// How a request wants to be sent.
#[derive(Clone, Copy)]
struct Manner {
    // For an answer to begin.
    patience: Duration,
    // For it to go on.
    inside: Duration,
    upgrade: bool,
}

pub(super) async fn exchange(
    shared: &Shared,
    mut request: Request<SendBody>,
) -> Response<ProxyBody> {
    if *request.method() == Method::CONNECT {
        let mut refusal = Response::new(ProxyBody::text("tunnels are not offered here"));
        *refusal.status_mut() = StatusCode::NOT_IMPLEMENTED;
        return refusal;
    }
    let given = request.extensions_mut().remove::<ResponseTimeout>().map(|given| given.0);
    let read_timeout = shared.settings.read_timeout;
    let manner = Manner {
        patience: given.unwrap_or(shared.settings.response_timeout),
        // Who waits long for an answer to begin waits as long for it to go on.
        inside: given.map_or(read_timeout, |given| given.max(read_timeout)),
        upgrade: false,
    };
    pass_on_informational(&mut request);
    let client = forward::prepare(&mut request, shared.settings.via);
    let asked = shared.upstreams.any_base().then(|| request.uri().path_and_query().cloned());
    let manner = Manner { upgrade: client.is_some(), ..manner };

    let (mut why, mut at) = (NOWHERE, None);
    let mut tried = Vec::new();
    while let Some(mut turn) = shared.upstreams.next(&mut tried) {
        address(shared, &turn, asked.as_ref(), &mut request);
        match attempt(&turn, request, manner).await {
            Attempt::Answered(answer) => return answered(shared, turn, answer, manner, client),
            Attempt::Trouble(trouble, detail, phase) => {
                let by = turn.upstream().name.clone();
                turn.ended(blame(trouble));
                return explained(trouble_response(trouble, detail), Some(by), phase, detail);
            }
            Attempt::NotReached(unsent, detail) => {
                at = Some(turn.upstream().name.clone());
                turn.ended(Ended::NotReached);
                (request, why) = (unsent, detail);
                if shared.upstreams.count() == 1 {
                    break;
                }
            }
        }
    }
    explained(trouble_response(Trouble::NotReached, why), at, Phase::Connect, why)
}

/// Adds what operators must know of a trouble, and callers must not.
fn explained(
    mut response: Response<ProxyBody>,
    by: Option<AnsweredBy>,
    phase: Phase,
    error: &str,
) -> Response<ProxyBody> {
    let phase = phase.as_str();
    let upstream = by.as_ref().map(|by| format!(" upstream={}", by.0)).unwrap_or_default();
    let cause = Cause::new(format!("phase={phase}{upstream} error={error}"));
    let extensions = response.extensions_mut();
    extensions.insert(cause);
    if let Some(by) = by {
        extensions.insert(by);
    }
    response
}

/// A client that understands informational answers gets those of the upstream. It asked us and not
/// the upstream for leave to send its body, so 100 is ours to give.
fn pass_on_informational(request: &mut Request<SendBody>) {
    let Some(informed) = request.extensions_mut().remove::<Informed>() else { return };
    hyper::ext::on_informational(request, move |answer| {
        if answer.status() != StatusCode::CONTINUE {
            informed.pass(answer.status(), &forward::informational(answer.headers()));
        }
    });
}

fn blame(trouble: Trouble) -> Ended {
    match trouble {
        Trouble::NotReached => Ended::NotReached,
        Trouble::Failed | Trouble::HeadTooLarge | Trouble::TimedOut => Ended::Badly,
        Trouble::RequestBroken => Ended::Abandoned,
    }
}

/// Writes the upstream's own name and base into a request.
fn address(
    shared: &Shared,
    turn: &Turn,
    asked: Option<&Option<PathAndQuery>>,
    request: &mut Request<SendBody>,
) {
    let upstream = turn.upstream();
    if let Some(asked) = asked
        && let Some(target) = upstream.address.target(asked.as_ref())
    {
        *request.uri_mut() = target;
    }
    let headers = request.headers_mut();
    let own = shared.settings.host == HostHeader::Upstream;
    if (own || !headers.contains_key(http::header::HOST))
        && let Some(host) = &upstream.host
    {
        headers.insert(http::header::HOST, host.clone());
    }
}

/// Sends a request to one upstream: on a connection that was used before, and, if that turns out
/// to be closed before anything was sent, on a fresh one.
async fn attempt(turn: &Turn, mut request: Request<SendBody>, manner: Manner) -> Attempt {
    let mut fresh = false;
    loop {
        let mut connection = match turn.upstream().pool.take(fresh).await {
            Ok(connection) => connection,
            Err(why) => return Attempt::NotReached(request, why),
        };
        let progress = request.body().progress();
        match send(&mut connection, request, progress.as_deref(), manner).await {
            Sent::Answered(response) => {
                return Attempt::Answered(Answer { response, connection, progress });
            }
            Sent::Unsent(unsent) if fresh => return Attempt::NotReached(*unsent, GONE),
            Sent::Unsent(unsent) => (request, fresh) = (*unsent, true),
            Sent::Trouble(trouble, detail) => {
                let is_sent = progress.is_none_or(|progress| progress.is_finished());
                let phase = if is_sent { Phase::Waiting } else { Phase::Sending };
                return Attempt::Trouble(trouble, detail, phase);
            }
        }
    }
}

/// What became of a request on one connection.
enum Sent {
    Answered(Response<Incoming>),
    Unsent(Box<Request<SendBody>>),
    Trouble(Trouble, &'static str),
}

async fn send(
    connection: &mut Connection,
    request: Request<SendBody>,
    progress: Option<&Progress>,
    manner: Manner,
) -> Sent {
    connection.begin();
    // The answer arrives only while we drive the connection ourselves, so nobody needs to wake us
    // for it; therefore it must not lose its turn to the task's budget either.
    let mut answer = pin!(unconstrained(connection.sender().try_send_request(request)));
    let mut silence = Silence::new(manner.patience);
    let answered = poll_fn(|cx| {
        match manner.upgrade {
            false => connection.drive(cx),
            true => connection.drive_towards_upgrade(cx),
        }
        let mut unwoken = Context::from_waker(Waker::noop());
        let mut polled = answer.as_mut().poll(&mut unwoken);
        if polled.is_pending() && connection.has_ended() {
            // No answer comes any more, and a request that was not taken must come back.
            connection.close();
            polled = answer.as_mut().poll(cx);
        }
        if let Poll::Ready(answer) = polled {
            return Poll::Ready(Some(answer));
        }
        silence.poll_broken(connection, progress, cx).map(|()| None)
    });
    match answered.await {
        Some(Ok(response)) => Sent::Answered(response),
        Some(Err(mut error)) => match error.take_message() {
            Some(unsent) => Sent::Unsent(Box::new(unsent)),
            None => failed(&error.into_error(), progress, connection.wrote()),
        },
        None if progress.is_some_and(Progress::is_starving) => {
            Sent::Trouble(Trouble::RequestBroken, "the request's body stood still for too long")
        }
        None => Sent::Trouble(Trouble::TimedOut, "the upstream did not answer in time"),
    }
}

fn failed(error: &hyper::Error, progress: Option<&Progress>, wrote: bool) -> Sent {
    tracing::debug!(%error, source = ?std::error::Error::source(error), "an exchange failed");
    if progress.is_some_and(Progress::is_broken) {
        return Sent::Trouble(Trouble::RequestBroken, "the request's body broke off");
    }
    if !wrote {
        // The first write failed.
        return Sent::Trouble(Trouble::NotReached, GONE);
    }
    if error.is_parse_too_large() {
        return Sent::Trouble(
            Trouble::HeadTooLarge,
            "the head of the upstream's answer is too large",
        );
    }
    let detail = match error {
        error if error.is_parse() => "the upstream's answer is no HTTP",
        error if error.is_incomplete_message() => "the upstream closed the connection",
        _ => "the connection to the upstream failed",
    };
    Sent::Trouble(Trouble::Failed, detail)
}

/// How long an upstream has been silent. While a body is being sent, silence counts from the
/// last time it took some of that.
struct Silence {
    patience: Duration,
    deadline: Instant,
    frames: u64,
}

impl Silence {
    fn new(patience: Duration) -> Self {
        Self { patience, deadline: Instant::now() + patience, frames: 0 }
    }

    fn poll_broken(
        &mut self,
        connection: &mut Connection,
        progress: Option<&Progress>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        while connection.timer().poll(cx, self.deadline).is_ready() {
            let frames = progress.map_or(0, Progress::frames);
            if frames == self.frames {
                return Poll::Ready(());
            }
            self.frames = frames;
            self.deadline = Instant::now() + self.patience;
        }
        Poll::Pending
    }
}

fn answered(
    shared: &Shared,
    mut turn: Turn,
    answer: Answer,
    manner: Manner,
    client: Option<OnUpgrade>,
) -> Response<ProxyBody> {
    let Answer { mut response, mut connection, progress } = answer;
    connection.announce(forward::kept_open(response.headers()));
    let status = response.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = client.filter(|_| connection.has_ended()) else {
            turn.ended(Ended::Badly);
            return trouble_response(Trouble::Failed, "the upstream switched protocols unasked");
        };
        turn.ended(Ended::Well);
        upgrade::splice(client, *connection, turn);
        return response.map(|_| ProxyBody::empty());
    }
    response.extensions_mut().insert(turn.upstream().name.clone());
    let gateway_error = matches!(status.as_u16(), 502..=504);
    let badly = gateway_error && shared.settings.gateway_errors_count;
    turn.ended(if badly { Ended::Badly } else { Ended::Well });
    if forward::is_unframed(&response) {
        response.extensions_mut().insert(Unframed);
    }
    forward::clean_response(&mut response, shared.settings.via);
    let lease = match progress {
        Some(progress) if !progress.is_finished() => {
            let (driven, rest) = turn.split();
            tokio::spawn(drive_on(driven, connection, progress, manner.inside));
            rest.lease(None)
        }
        _ => turn.lease(Some(connection)),
    };
    response.map(|incoming| ProxyBody::upstream(incoming, lease, manner.inside))
}

/// Sends the rest of a body whose answer has begun already. A client that reads that answer only
/// after its own last byte would otherwise wait for itself.
async fn drive_on(
    upstream: Arc<super::upstreams::Upstream>,
    mut connection: Box<Connection>,
    progress: Arc<Progress>,
    patience: Duration,
) {
    let mut silence = Silence::new(patience);
    let ended = poll_fn(|cx| {
        connection.drive(cx);
        if connection.has_ended() || connection.is_reusable() {
            return Poll::Ready(true);
        }
        if progress.is_finished() {
            // From here on the answer's reader watches the silence.
            return Poll::Pending;
        }
        silence.poll_broken(&mut connection, Some(&progress), cx).map(|()| false)
    });
    if ended.await {
        upstream.pool.give_back(connection);
    }
}
