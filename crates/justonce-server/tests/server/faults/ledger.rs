//! A service that records every effect, and can delay an answer.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use justonce_testkit::history::Recorder;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A service with a ledger. Clones are the same service.
#[derive(Clone)]
pub(crate) struct Ledger {
    pub(crate) address: SocketAddr,
    book: Arc<Book>,
}

struct Book {
    recorder: Recorder,
    effects: AtomicU64,
    held: Mutex<HashMap<String, watch::Sender<bool>>>,
}

impl Ledger {
    /// A service that answers each effect with a number of its own.
    pub(crate) async fn start(recorder: Recorder) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let book = Book { recorder, effects: AtomicU64::new(0), held: Mutex::default() };
        let ledger = Self { address, book: Arc::new(book) };
        let serving = ledger.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let ledger = serving.clone();
                let service = service_fn(move |request| ledger.clone().answer(request));
                tokio::spawn(async move {
                    // A gateway that was killed leaves its connections broken.
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        ledger
    }

    /// Makes the next effect under this key wait with its answer until it is let go.
    pub(crate) fn hold(&self, key: &str) -> Held {
        let gate = watch::Sender::new(false);
        self.book.held.lock().unwrap().insert(key.to_owned(), gate.clone());
        Held(gate)
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let key = request.headers().get("idempotency-key").unwrap().to_str().unwrap();
        let key = key.trim_matches('"').to_owned();
        // A request that breaks off has no effect.
        let Ok(_) = request.into_body().collect().await else {
            return Ok(Response::builder().status(400).body(Full::default()).unwrap());
        };
        let number = self.book.effects.fetch_add(1, Ordering::SeqCst);
        let answer = format!("effect {number} of {key}");
        let gate = self.book.held.lock().unwrap().remove(&key);
        self.book.recorder.effect(&key, &answer);
        if let Some(gate) = gate {
            // A dropped holder lets it go on.
            let _ = gate.subscribe().wait_for(|open| *open).await;
        }
        Ok(Response::builder().status(201).body(Full::from(answer)).unwrap())
    }
}

/// An effect whose answer waits. Dropping it lets it go.
pub(crate) struct Held(watch::Sender<bool>);

impl Held {
    pub(crate) fn let_go(self) {}
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}
