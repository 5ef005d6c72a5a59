//! The toy payments API: it charges for every request.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use justonce_testkit::history::Recorder;
use serde::Deserialize;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::answer::content;
use crate::behaviour::{Behaviour, End};
use crate::exchange::{KEY, PAYMENTS};
use crate::ledger::Ledger;

/// The API, for as long as this lives.
#[derive(Debug)]
pub(crate) struct ToyApi {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Aborted when dropped.
    _serving: JoinSet<()>,
}

/// What the requests share.
#[derive(Debug)]
struct Shared {
    seed: u64,
    ledger: Ledger,
    recorder: Recorder,
    is_faultless: AtomicBool,
    asked: Mutex<BTreeMap<String, u64>>,
}

/// What is to be paid.
#[derive(Debug, Deserialize)]
struct Payment {
    amount: u64,
    to: String,
}

/// Marks a response that is not sent: the connection breaks instead.
#[derive(Clone, Copy, Debug)]
struct Break;

impl ToyApi {
    /// Starts it on a free port, with a new ledger.
    pub(crate) async fn start(seed: u64, ledger: &Path, recorder: Recorder) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            seed,
            ledger: Ledger::create(ledger)?,
            recorder,
            is_faultless: AtomicBool::new(false),
            asked: Mutex::default(),
        });
        let router = Router::new().route(PAYMENTS, post(pay)).with_state(Arc::clone(&shared));
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, router));
        Ok(Self { address, shared, _serving: serving })
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests have arrived.
    pub(crate) fn asked(&self) -> u64 {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    /// Answers every request from now on.
    pub(crate) fn stop_faults(&self) {
        self.shared.is_faultless.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    /// Counts a request with this key, and chooses what to do with it.
    fn next(&self, key: &str) -> Behaviour {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let ask = asked.entry(key.to_owned()).or_default();
        *ask += 1;
        if self.is_faultless.load(Ordering::Relaxed) {
            return Behaviour::NORMAL;
        }
        Behaviour::of(self.seed, key, *ask)
    }

    async fn pay(&self, key: &str, payment: &Payment, behaviour: Behaviour) -> Response {
        tokio::time::sleep(behaviour.pause).await;
        if behaviour.end == End::Refuses {
            let text = "busy, and nothing was charged\n";
            return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], text).into_response();
        }
        let Ok(charge) = self.ledger.charge(key, payment.amount, &payment.to) else {
            return (StatusCode::INTERNAL_SERVER_ERROR, "the ledger failed\n").into_response();
        };
        let head = [
            (LOCATION, format!("{PAYMENTS}/{}", charge.id)),
            (CONTENT_TYPE, "application/json".to_owned()),
        ];
        let body = json!({ "id": charge.id, "amount": charge.amount, "to": charge.to }).to_string();
        let mut response = (StatusCode::CREATED, head, body.clone()).into_response();
        let answer = content(response.status(), response.headers(), body.as_bytes());
        self.recorder.effect(key, &answer);
        if behaviour.end == End::Breaks {
            response.extensions_mut().insert(Break);
        }
        response
    }
}

async fn pay(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let key = headers.get(KEY).and_then(|key| key.to_str().ok()).unwrap_or_default();
    let key = key.trim_matches('"').to_owned();
    let Ok(payment) = serde_json::from_slice::<Payment>(&body) else {
        let text = "expected {\"amount\": a number, \"to\": a name}\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    let behaviour = shared.next(&key);
    // Work that has begun goes on when the caller disconnects.
    let work = tokio::spawn(async move { shared.pay(&key, &payment, behaviour).await });
    work.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

async fn accept(listener: TcpListener, router: Router) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(serve(stream, router.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, router: Router) {
    let service = service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        async move {
            let response = match router.oneshot(request.map(Body::new)).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            if response.extensions().get::<Break>().is_some() {
                // An error of the service makes hyper close the connection without an answer.
                return Err(io::Error::from(io::ErrorKind::ConnectionAborted));
            }
            Ok(response)
        }
    });
    // A client may break its connection.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Answer;
    use crate::chance::Chance;
    use crate::exchange::{Disconnect, Sent, send};
    use crate::ledger::charges_by_key;
    use crate::plan::Payment;

    /// A payment whose first request meets this end.
    fn payment_with(end: End) -> Payment {
        let made = (0..).map(|number| Payment::new(7, number));
        made.into_iter().find(|payment| Behaviour::of(7, payment.key(), 1).end == end).unwrap()
    }

    #[tokio::test]
    async fn it_answers_refuses_or_breaks_and_the_ledger_tells_which() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.jsonl");
        let toy = ToyApi::start(7, &path, Recorder::default()).await.unwrap();
        let chance = Chance::new(7, &[]);
        let mut answers = Vec::new();
        for end in [End::Answers, End::Refuses, End::Breaks] {
            let payment = payment_with(end);
            let sent = send(toy.address(), &payment.request(&chance), Disconnect::Never).await;
            let charged = charges_by_key(&path).unwrap().get(payment.key()).copied();
            answers.push((sent, charged));
        }
        assert_eq!(toy.asked(), 3);
        let [answered, refused, broken] = &answers[..] else { panic!("three were sent") };
        assert!(matches!(answered, (Sent::Answered(Answer::Acknowledged { .. }), Some(1))));
        assert!(matches!(refused, (Sent::Answered(Answer::TryAgain), None)));
        assert!(matches!(broken, (Sent::Lost, Some(1))));
    }

    #[tokio::test]
    async fn an_api_without_faults_answers_everybody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.jsonl");
        let toy = ToyApi::start(7, &path, Recorder::default()).await.unwrap();
        toy.stop_faults();
        let chance = Chance::new(7, &[]);
        let request = payment_with(End::Breaks).request(&chance);
        let sent = send(toy.address(), &request, Disconnect::Never).await;
        assert!(matches!(sent, Sent::Answered(Answer::Acknowledged { replayed: false, .. })));
    }
}
