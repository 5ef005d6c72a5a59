//! The toy payments API: it charges whoever asks, as often as asked.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use http::header::{LOCATION, RETRY_AFTER};
use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tower::ServiceExt;

use super::exchange::{KEY, PAYMENTS};
use super::ledger::Ledger;
use super::mood::{End, Mood};

/// The API, for as long as this lives.
#[derive(Debug)]
pub(super) struct Toy {
    address: SocketAddr,
    desk: Arc<Desk>,
    /// Aborted when dropped.
    _serving: JoinSet<()>,
}

/// Where the requests arrive.
#[derive(Debug)]
struct Desk {
    seed: u64,
    ledger: Ledger,
    calm: AtomicBool,
    asked: Mutex<BTreeMap<String, u64>>,
}

/// What is to be paid.
#[derive(Debug, Deserialize)]
struct Payment {
    amount: u64,
    to: String,
}

/// Marks an answer that is not to be given: the connection breaks instead.
#[derive(Clone, Copy, Debug)]
struct Break;

impl Toy {
    /// Starts it on a free port, with a new ledger.
    pub(super) async fn start(seed: u64, ledger: &Path) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let desk = Arc::new(Desk {
            seed,
            ledger: Ledger::create(ledger)?,
            calm: AtomicBool::new(false),
            asked: Mutex::default(),
        });
        let router = Router::new().route(PAYMENTS, post(pay)).with_state(Arc::clone(&desk));
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, router));
        Ok(Self { address, desk, _serving: serving })
    }

    /// Where it listens.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests have arrived.
    pub(super) fn asked(&self) -> u64 {
        self.desk.asked.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    /// Ends the whims.
    pub(super) fn calm_down(&self) {
        self.desk.calm.store(true, Ordering::Relaxed);
    }
}

impl Desk {
    /// Notes that this key has asked, and chooses the mood in which it is met.
    fn meet(&self, key: &str) -> Mood {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let ask = asked.entry(key.to_owned()).or_default();
        *ask += 1;
        if self.calm.load(Ordering::Relaxed) {
            return Mood::CALM;
        }
        Mood::of(self.seed, key, *ask)
    }

    async fn pay(&self, key: &str, payment: &Payment, mood: Mood) -> Response {
        tokio::time::sleep(mood.pause).await;
        if mood.end == End::Refuses {
            let text = "busy, and nothing was charged\n";
            return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], text).into_response();
        }
        let Ok(charge) = self.ledger.charge(key, payment.amount, &payment.to) else {
            return (StatusCode::INTERNAL_SERVER_ERROR, "the ledger failed\n").into_response();
        };
        let place = format!("{PAYMENTS}/{}", charge.id);
        let body = Json(json!({ "id": charge.id, "amount": charge.amount, "to": charge.to }));
        let mut response = (StatusCode::CREATED, [(LOCATION, place)], body).into_response();
        if mood.end == End::Breaks {
            response.extensions_mut().insert(Break);
        }
        response
    }
}

async fn pay(State(desk): State<Arc<Desk>>, headers: HeaderMap, body: Bytes) -> Response {
    let key = headers.get(KEY).and_then(|key| key.to_str().ok()).unwrap_or_default();
    let key = key.trim_matches('"').to_owned();
    let Ok(payment) = serde_json::from_slice::<Payment>(&body) else {
        let text = "expected {\"amount\": a number, \"to\": a name}\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    let mood = desk.meet(&key);
    // As in any API worth the name, work that has begun goes on when the caller has left.
    let work = tokio::spawn(async move { desk.pay(&key, &payment, mood).await });
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
    // How a connection ends is the client's affair.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

#[cfg(test)]
mod tests {
    use super::super::answer::Answer;
    use super::super::dice::Dice;
    use super::super::exchange::{Manner, Sent, send};
    use super::super::ledger::charges_by_key;
    use super::super::plan::Payment;
    use super::*;

    /// A payment whose first request meets this end.
    fn payment_with(end: End) -> Payment {
        let made = (0..).map(|number| Payment::new(7, number));
        made.into_iter().find(|payment| Mood::of(7, payment.key(), 1).end == end).unwrap()
    }

    #[tokio::test]
    async fn it_answers_refuses_or_breaks_and_the_ledger_tells_which() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.jsonl");
        let toy = Toy::start(7, &path).await.unwrap();
        let dice = Dice::new(7, &[]);
        let mut answers = Vec::new();
        for end in [End::Answers, End::Refuses, End::Breaks] {
            let payment = payment_with(end);
            let sent = send(toy.address(), &payment.request(&dice), Manner::Patient).await;
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
    async fn a_calm_api_answers_everybody() {
        let directory = tempfile::tempdir().unwrap();
        let toy = Toy::start(7, &directory.path().join("ledger.jsonl")).await.unwrap();
        toy.calm_down();
        let dice = Dice::new(7, &[]);
        let request = payment_with(End::Breaks).request(&dice);
        let sent = send(toy.address(), &request, Manner::Patient).await;
        assert!(matches!(sent, Sent::Answered(Answer::Acknowledged { replayed: false, .. })));
    }
}
