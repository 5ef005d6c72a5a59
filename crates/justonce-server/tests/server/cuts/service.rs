//! A service that keeps a ledger of its effects, and answers in the form that the path names.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::support::upstream::{Connection, Upstream};

/// Every effect under each key, in the words of its answer. Clones are the same ledger.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<HashMap<String, Vec<String>>>>);

impl Ledger {
    /// Takes effect: the answer to that.
    fn effect(&self, key: &str) -> String {
        let mut ledger = self.0.lock().unwrap();
        let effects = ledger.entry(key.trim_matches('"').to_owned()).or_default();
        let answer = format!("effect {} of {key}, {}", effects.len() + 1, "paid ".repeat(4));
        effects.push(answer.clone());
        answer
    }

    pub(crate) fn of(&self, key: &str) -> Vec<String> {
        self.0.lock().unwrap().get(key).cloned().unwrap_or_default()
    }

    /// Every key under which something took effect, and how often.
    pub(crate) fn counts(&self) -> Vec<(String, usize)> {
        let ledger = self.0.lock().unwrap();
        ledger.iter().map(|(key, effects)| (key.clone(), effects.len())).collect()
    }
}

/// How a response says where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// By its length.
    Length,
    /// In two chunks, with a trailer behind them; with HTTP/2, a trailer.
    Trailer,
    /// By its length, behind an informational response.
    Informed,
    /// By the end of its connection, in HTTP/1.0.
    Ended10,
    /// By the end of its connection, in HTTP/1.1.
    Ended11,
}

impl Form {
    const ALL: [Self; 5] =
        [Self::Length, Self::Trailer, Self::Informed, Self::Ended10, Self::Ended11];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Trailer => "trailer",
            Self::Informed => "informed",
            Self::Ended10 => "ended-1.0",
            Self::Ended11 => "ended-1.1",
        }
    }

    /// The form that a target names at its end.
    fn of(target: &str) -> Self {
        let name = target.rsplit('/').next().unwrap_or_default();
        Self::ALL.into_iter().find(|form| form.name() == name).expect(target)
    }

    const fn ends_the_connection(self) -> bool {
        matches!(self, Self::Ended10 | Self::Ended11)
    }

    fn response(self, body: &str) -> String {
        let with_length =
            format!("HTTP/1.1 201 Created\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let (begin, rest) = body.split_at(body.len() / 2);
        match self {
            Self::Length => with_length,
            Self::Informed => {
                format!("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n{with_length}")
            }
            Self::Trailer => format!(
                "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                 {:x}\r\n{begin}\r\n{:x}\r\n{rest}\r\n0\r\nx-sum: {}\r\n\r\n",
                begin.len(),
                rest.len(),
                body.len()
            ),
            Self::Ended10 => format!("HTTP/1.0 201 Created\r\nx-a: b\r\n\r\n{body}"),
            Self::Ended11 => format!("HTTP/1.1 201 Created\r\nconnection: close\r\n\r\n{body}"),
        }
    }
}

/// Starts a service that speaks HTTP/1.
pub(crate) fn http1(ledger: &Ledger) -> SocketAddr {
    let (upstream, ledger) = (Upstream::new(), ledger.clone());
    let address = upstream.address();
    std::thread::spawn(move || {
        loop {
            let (connection, ledger) = (upstream.accept(), ledger.clone());
            std::thread::spawn(move || answer_all(connection, &ledger));
        }
    });
    address
}

fn answer_all(mut connection: Connection, ledger: &Ledger) {
    // A request that breaks off has no effect.
    while let Some(request) = connection.try_read() {
        let form = Form::of(request.start.split(' ').nth(1).unwrap());
        let body = ledger.effect(request.header("idempotency-key").unwrap());
        connection.write(form.response(&body).as_bytes());
        if form.ends_the_connection() {
            return;
        }
    }
}

/// Starts a service that speaks HTTP/2 from the first byte.
pub(crate) fn http2(ledger: &Ledger) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, ledger) = (listener.local_addr().unwrap(), ledger.clone());
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let ledger = ledger.clone();
                let service = service_fn(move |request| answer(request, ledger.clone()));
                let http = http2::Builder::new(TokioExecutor::new());
                // A connection that is cut ends with an error.
                tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
            }
        });
    });
    address
}

async fn answer(
    request: Request<Incoming>,
    ledger: Ledger,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let form = Form::of(request.uri().path());
    let key = request.headers().get("idempotency-key").unwrap().to_str().unwrap().to_owned();
    if request.into_body().collect().await.is_err() {
        let refusal = Response::builder().status(400).body(Full::default().boxed());
        return Ok(refusal.unwrap());
    }
    let body = ledger.effect(&key);
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from(body.len()));
    let body = Full::new(Bytes::from(body));
    let body = match form {
        Form::Trailer => body.with_trailers(ready(Some(Ok(trailers)))).boxed(),
        _ => body.boxed(),
    };
    Ok(Response::builder().status(201).body(body).unwrap())
}
