//! The service that the layer makes.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response, request};
use http_body::Body;
use pin_project_lite::pin_project;
use tower::Service;

use crate::admit::{Admitted, admit};
use crate::body::{BoxError, RequestBody, ResponseBody};
use crate::execute::Answer;
use crate::protect::Request as Protect;
use crate::read::swallow;
use crate::shared::Shared;
use crate::well_known;

/// A service whose operations take effect once.
#[derive(Clone, Debug)]
pub struct Protected<S> {
    shared: Arc<Shared>,
    inner: S,
}

impl<S> Protected<S> {
    pub(crate) const fn new(shared: Arc<Shared>, inner: S) -> Self {
        Self { shared, inner }
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) const fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, B, R> Service<Request<B>> for Protected<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ProtectedFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let route = match admit(&self.shared.routes, &mut parts) {
            Admitted::Passed => return self.pass(parts, body),
            Admitted::Under(route) => route,
            Admitted::Ours(asked) => {
                let shared = Arc::clone(&self.shared);
                return ours(async move { Ok(well_known::answer(&shared, asked).await) });
            }
            Admitted::Refused(problem) => {
                let shared = Arc::clone(&self.shared);
                return ours(async move {
                    swallow(&parts.headers, body).await;
                    Ok(shared.described(problem, None).map(ResponseBody::whole))
                });
            }
        };
        // The service that was asked whether it is ready is the one to be called.
        let clone = self.inner.clone();
        let service = mem::replace(&mut self.inner, clone);
        let shared = Arc::clone(&self.shared);
        let protect = Protect { shared, route, service, parts };
        ours(protect.answer(body))
    }
}

fn ours<F, R, E>(
    answer: impl Future<Output = Answer<R, E>> + Send + 'static,
) -> ProtectedFuture<F, R, E> {
    ProtectedFuture { kind: Kind::Ours { answer: Box::pin(answer) } }
}

impl<S> Protected<S> {
    fn pass<B, R>(
        &mut self,
        parts: request::Parts,
        body: B,
    ) -> ProtectedFuture<S::Future, R, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    {
        let request = Request::from_parts(parts, RequestBody::passed(body));
        ProtectedFuture { kind: Kind::Passed { answer: self.inner.call(request) } }
    }
}

pin_project! {
    /// The answer of a [`Protected`] service.
    pub struct ProtectedFuture<F, R, E> {
        #[pin]
        kind: Kind<F, R, E>,
    }
}

/// An answer that takes more than calling the service.
type Ours<R, E> = Pin<Box<dyn Future<Output = Answer<R, E>> + Send>>;

pin_project! {
    #[project = KindParts]
    enum Kind<F, R, E> {
        Passed { #[pin] answer: F },
        Ours { answer: Ours<R, E> },
    }
}

impl<F, R, E> Future for ProtectedFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Answer<R, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindParts::Passed { answer } => {
                let response = ready!(answer.poll(cx))?;
                Poll::Ready(Ok(response.map(ResponseBody::passed)))
            }
            KindParts::Ours { answer } => answer.as_mut().poll(cx),
        }
    }
}

impl<F, R, E> std::fmt::Debug for ProtectedFuture<F, R, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProtectedFuture").finish_non_exhaustive()
    }
}
