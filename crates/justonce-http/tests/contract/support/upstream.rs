//! The service behind the layer: it notes what it hears and does what a test wants.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use justonce_http::Idempotent;
use tokio::sync::{Notify, watch};
use tower::Service;

/// A request as the service heard it.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) uri: http::Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
    pub(crate) operation: Option<Idempotent>,
    /// Which request it was, from 1.
    pub(crate) number: usize,
}

impl Heard {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.get_all(name).iter();
        let first = all.next()?;
        assert!(all.next().is_none(), "{name} was heard more than once");
        Some(first.to_str().expect("a readable header"))
    }
}

type Acting = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Act = dyn Fn(Heard) -> Acting + Send + Sync;

/// The service. Clones share everything.
#[derive(Clone)]
pub(crate) struct Upstream {
    heard: Arc<Mutex<Vec<Heard>>>,
    count: watch::Sender<usize>,
    act: Arc<Act>,
}

impl Upstream {
    /// A service that does this.
    pub(crate) fn new<F>(act: impl Fn(Heard) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let act = move |heard: Heard| Box::pin(act(heard)) as Acting;
        Self { heard: Arc::default(), count: watch::Sender::default(), act: Arc::new(act) }
    }

    /// A service that answers 201 with the number of the call, at once.
    pub(crate) fn counting() -> Self {
        Self::new(async |heard| created(heard.number))
    }

    /// A service that always gives this answer.
    pub(crate) fn answering(answer: impl Fn() -> Response<Body> + Send + Sync + 'static) -> Self {
        Self::new(move |_| std::future::ready(answer()))
    }

    /// A service that answers as [`Upstream::counting`] once it is told to, call by call.
    pub(crate) fn waiting() -> (Self, Arc<Notify>) {
        let go = Arc::new(Notify::new());
        let wait = Arc::clone(&go);
        let service = Self::new(move |heard| {
            let wait = Arc::clone(&wait);
            async move {
                wait.notified().await;
                created(heard.number)
            }
        });
        (service, go)
    }

    /// How many requests it heard.
    pub(crate) fn calls(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until it has heard this many requests.
    pub(crate) async fn called(&self, count: usize) {
        let mut counts = self.count.subscribe();
        counts.wait_for(|now| *now >= count).await.expect("the service lives");
    }

    /// The request with this number, from 1.
    pub(crate) fn heard(&self, number: usize) -> Heard {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.get(number - 1).cloned().expect("a request with this number")
    }
}

/// The answer to a call with this number.
pub(crate) fn created(number: usize) -> Response<Body> {
    let answer = Response::builder().status(201).header("location", format!("/payments/{number}"));
    answer.body(Body::from(format!("payment {number}"))).expect("a valid answer")
}

/// An answer with a status and no more.
pub(crate) fn status(code: u16) -> Response<Body> {
    Response::builder().status(code).body(Body::from(code.to_string())).expect("a valid answer")
}

impl<B> Service<Request<B>> for Upstream
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Debug,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let body = body.collect().await.expect("a whole body");
            let trailers = body.trailers().cloned().unwrap_or_default();
            let body = body.to_bytes();
            let acting = {
                let mut all = this.heard.lock().unwrap_or_else(PoisonError::into_inner);
                let heard = Heard {
                    uri: parts.uri,
                    headers: parts.headers,
                    body,
                    trailers,
                    operation: parts.extensions.remove(),
                    number: all.len() + 1,
                };
                all.push(heard.clone());
                this.count.send_replace(heard.number);
                (this.act)(heard)
            };
            Ok(acting.await)
        })
    }
}
