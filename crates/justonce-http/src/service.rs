//! The tower service that the layer makes, and which requests it protects.
//!
//! What is forwarded is settled first, so that scope, fingerprint and service see the same request.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::TryFutureExt;
use http::header::ORIGIN;
use http::{HeaderValue, Method, Request, Response, Uri, request};
use http_body::Body;
use pin_project_lite::pin_project;
use tower::Service;

use crate::body::{BoxError, RequestBody, ResponseBody};
use crate::execute::CallResult;
use crate::grpc::{self, GrpcResponse};
use crate::headers::{remove_ours, remove_per_hop};
use crate::preflight::preflight;
use crate::problem::{Problem, ProblemCode};
use crate::protect::ProtectedRequest;
use crate::read::drain;
use crate::report::{Notes, RequestReport};
use crate::routes::{Route, Routes, is_never_protected};
use crate::rule::PathEscapes;
use crate::shared::Shared;
use crate::target::{NormalPath, TwoHosts, normalise_host};
use crate::well_known;

/// A service whose operations take effect once.
#[derive(Clone, Debug)]
pub struct Protected<S> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) inner: S,
}

impl<S, B, R> Service<Request<B>> for Protected<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>, Future: Send, Error: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ProtectedFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let shared = || Arc::clone(&self.shared);
        let admission = admit(&self.shared.routes, &mut parts);
        let is_grpc = grpc::is_call(&parts);
        match admission {
            Admission::PassThrough(route) => {
                report(&parts, route.as_ref(), "passed");
                let request = Request::from_parts(parts, RequestBody::passed(body));
                let inner = self.inner.call(request);
                ProtectedFuture { kind: Kind::PassThrough { inner, is_grpc } }
            }
            Admission::Protected(route) => {
                // The service that was polled ready is the one to be called.
                let clone = self.inner.clone();
                let service = mem::replace(&mut self.inner, clone);
                let (shared, notes) = (shared(), Notes::of(&parts, &route));
                let page = route.rule.cors.is_some().then(|| Page::of(&parts, &route));
                let handled =
                    ProtectedRequest { shared, route, service, parts, notes }.handle(body);
                if page.is_none() && !is_grpc {
                    return boxed(handled);
                }
                boxed(handled.map_ok(move |response| {
                    let response = if is_grpc { response.into_grpc() } else { response };
                    page.iter().fold(response, |response, page| page.may_read(response))
                }))
            }
            Admission::Preflight(response) => {
                report(&parts, None, "preflight");
                boxed(async move { Ok(response.map(ResponseBody::whole)) })
            }
            Admission::WellKnown => {
                report(&parts, None, "page");
                let shared = shared();
                boxed(async move { Ok(well_known::respond(&shared, parts).await) })
            }
            Admission::Refused(problem, route) => {
                report(&parts, route.as_ref(), "refused");
                let shared = shared();
                boxed(async move {
                    drain(&parts.headers, body).await;
                    let mut response = shared.logged_problem(problem, None);
                    if let Some(route) = route {
                        route.add_cors(&mut response, parts.headers.get(ORIGIN));
                    }
                    let response = response.map(ResponseBody::whole);
                    Ok(if is_grpc { response.into_grpc() } else { response })
                })
            }
        }
    }
}

/// Tells how a request is answered that no route protects.
fn report(parts: &request::Parts, route: Option<&Arc<Route>>, answer: &'static str) {
    if let Some(report) = parts.extensions.get::<RequestReport>() {
        report.answered(route, answer);
    }
}

fn boxed<F, R, E>(
    response: impl Future<Output = CallResult<R, E>> + Send + 'static,
) -> ProtectedFuture<F, R, E> {
    ProtectedFuture { kind: Kind::Boxed { response: Box::pin(response) } }
}

pin_project! {
    /// The response future of a [`Protected`] service.
    pub struct ProtectedFuture<F, R, E> {
        #[pin]
        kind: Kind<F, R, E>,
    }
}

type Boxed<R, E> = Pin<Box<dyn Future<Output = CallResult<R, E>> + Send>>;

pin_project! {
    #[project = KindParts]
    enum Kind<F, R, E> {
        PassThrough { #[pin] inner: F, is_grpc: bool },
        Boxed { response: Boxed<R, E> },
    }
}

impl<F, R, E> Future for ProtectedFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = CallResult<R, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindParts::PassThrough { inner, is_grpc } => {
                let response = ready!(inner.poll(cx))?.map(ResponseBody::passed);
                Poll::Ready(Ok(if *is_grpc { response.into_grpc() } else { response }))
            }
            KindParts::Boxed { response } => response.as_mut().poll(cx),
        }
    }
}

impl<F, R, E> std::fmt::Debug for ProtectedFuture<F, R, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProtectedFuture").finish_non_exhaustive()
    }
}

/// The web page that sent a request, perhaps of another origin.
struct Page {
    origin: Option<HeaderValue>,
    route: Arc<Route>,
}

impl Page {
    fn of(parts: &request::Parts, route: &Arc<Route>) -> Self {
        Self { origin: parts.headers.get(ORIGIN).cloned(), route: Arc::clone(route) }
    }

    fn may_read<B>(&self, mut response: Response<B>) -> Response<B> {
        self.route.add_cors(&mut response, self.origin.as_ref());
        response
    }
}

/// How a request is handled.
enum Admission {
    /// By the layer itself.
    WellKnown,
    /// By the service, unprotected; the route, if one was looked for.
    PassThrough(Option<Arc<Route>>),
    /// By the rule of a route.
    Protected(Arc<Route>),
    /// By the layer: a browser asks what a page may send.
    Preflight(Response<Bytes>),
    /// Refused, on this route if it is known.
    Refused(Problem, Option<Arc<Route>>),
}

/// Decides how a request is handled, and settles its head.
fn admit(routes: &Routes, parts: &mut request::Parts) -> Admission {
    remove_ours(&mut parts.headers);
    if parts.method == Method::CONNECT {
        return Admission::PassThrough(None);
    }
    if is_miswritten(&parts.method) {
        return refused(OTHER_LETTERS);
    }
    let is_of_server = parts.method == Method::OPTIONS && parts.uri.path() == "*";
    if !parts.uri.path().starts_with('/') && !is_of_server {
        return refused(NO_SLASH);
    }
    if normalise_host(parts) == Err(TwoHosts) {
        return refused(TWO_HOSTS);
    }
    if well_known::is_served(parts) {
        return Admission::WellKnown;
    }
    if is_never_protected(&parts.method) {
        return preflight(routes, parts).map_or(Admission::PassThrough(None), Admission::Preflight);
    }
    // Only GET upgrades: with other methods an upgrade would avoid the protection.
    remove_per_hop(&mut parts.headers);
    let uri = parts.uri.clone();
    let Some(path) = NormalPath::of(uri.path()) else { return refused(NO_SLASH) };
    let route = routes.find_and_note(&parts.method, &path);
    if path.is_ambiguous() {
        let route = route.or_else(|| routes.default_route());
        if route.is_none_or(|route| route.rule.path_escapes == PathEscapes::Refuse) {
            let problem = Problem::new(ProblemCode::RequestInvalid, AMBIGUOUS);
            return Admission::Refused(problem, route.cloned());
        }
    }
    if path.as_str() != uri.path() {
        match with_path(&uri, path.as_str()) {
            Some(uri) => parts.uri = uri,
            None => return refused(NO_SLASH),
        }
    }
    match route.cloned() {
        Some(route) if route.is_protected() => Admission::Protected(route),
        route => Admission::PassThrough(route),
    }
}

/// Whether a method is a protected one in another case, which some services take for the same.
fn is_miswritten(method: &Method) -> bool {
    const PROTECTED: [Method; 4] = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];
    !PROTECTED.contains(method)
        && PROTECTED.iter().any(|one| one.as_str().eq_ignore_ascii_case(method.as_str()))
}

fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let target = match uri.query() {
        None => path.to_owned(),
        Some(query) => format!("{path}?{query}"),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target.parse().ok()?);
    Uri::from_parts(parts).ok()
}

fn refused(detail: &str) -> Admission {
    Admission::Refused(Problem::new(ProblemCode::RequestInvalid, detail), None)
}

const OTHER_LETTERS: &str = "The method is not written in capitals, and services read that \
                             differently. Nothing was executed.";
const TWO_HOSTS: &str = "The request names two hosts. Nothing was executed. Say the same in `Host` \
                         and in the target, each once.";
const NO_SLASH: &str = "The target of the request is no path that begins with a slash. Nothing was \
                        executed.";
const AMBIGUOUS: &str = "The path has an escaped slash, a backslash or a zero byte, which services \
                         read differently. Nothing was executed.";
