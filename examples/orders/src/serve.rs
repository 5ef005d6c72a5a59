//! Serves HTTP, and may lose an answer on its way.

use std::fmt;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tower::ServiceExt;

use crate::call::KEY;

/// The connection is closed, and there is no answer.
#[derive(Debug)]
struct Lost;

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer was lost on its way")
    }
}

impl std::error::Error for Lost {}

/// Serves until the process ends. `loses` says, by path and key, which answers are lost once the
/// work is done.
///
/// # Errors
///
/// If no connection can be taken any more.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    loses: impl Fn(&str, &str) -> bool + Send + Sync + 'static,
) -> io::Result<()> {
    println!("listening on http://{}", listener.local_addr()?);
    let loses = Arc::new(loses);
    loop {
        let (stream, _) = listener.accept().await?;
        let (app, loses) = (app.clone(), Arc::clone(&loses));
        let service = service_fn(move |request: Request<Incoming>| {
            answer(app.clone(), request, Arc::clone(&loses))
        });
        tokio::spawn(async move {
            // A caller that leaves, or whose answer is lost, is nobody's error.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    app: Router,
    request: Request<Incoming>,
    loses: Arc<impl Fn(&str, &str) -> bool>,
) -> Result<Response<Body>, Lost> {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let key = request.headers().get(KEY).and_then(|key| key.to_str().ok());
    let key = key.unwrap_or_default().to_owned();
    let answered = app.oneshot(request.map(Body::new)).await;
    let Ok(response) = answered;
    if loses(&path, &key) { Err(Lost) } else { Ok(response) }
}
