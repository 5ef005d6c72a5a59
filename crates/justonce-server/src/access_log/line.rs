//! The line of one request, from its head to the end of its response.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use http::header::{REFERER, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, Version, request};
use justonce::http::{ClientAddress, RequestReport, TraceId};
use justonce_proxy::ExchangeTime;
use tokio::time::Instant;

use super::entry::Entry;
use super::log::AccessLog;
use super::{query, time};
use crate::config::AccessLogFormat;

/// How a request is logged whose client left before the response began.
const LEFT: &str = "client_left";
/// How one is logged that the layer has not seen.
const NONE: &str = "none";

/// The line of a request. It is written when this is dropped.
#[derive(Debug)]
pub(super) struct Line {
    log: AccessLog,
    time: SystemTime,
    start: Instant,
    client: Option<IpAddr>,
    method: Method,
    uri: Uri,
    version: Version,
    trace: Option<TraceId>,
    headers: Option<CombinedHeaders>,
    received: Arc<AtomicU64>,
    exchange: ExchangeTime,
    report: RequestReport,
    status: Option<StatusCode>,
    sent: u64,
    is_whole: bool,
}

/// What only the combined format shows.
#[derive(Debug)]
struct CombinedHeaders {
    referer: Option<HeaderValue>,
    agent: Option<HeaderValue>,
}

impl Line {
    pub(super) fn begin(log: AccessLog, parts: &mut request::Parts) -> Self {
        let (exchange, report) = (ExchangeTime::default(), RequestReport::default());
        parts.extensions.insert(exchange.clone());
        parts.extensions.insert(report.clone());
        let header = |name: HeaderName| parts.headers.get(name).cloned();
        let headers = (log.format() == AccessLogFormat::Combined)
            .then(|| CombinedHeaders { referer: header(REFERER), agent: header(USER_AGENT) });
        Self {
            time: time::now(),
            start: Instant::now(),
            client: parts.extensions.get().map(|ClientAddress(address)| *address),
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            version: parts.version,
            trace: TraceId::of(&parts.headers),
            headers,
            received: Arc::default(),
            exchange,
            report,
            status: None,
            sent: 0,
            is_whole: false,
            log,
        }
    }

    /// Counts the bytes of the request's body.
    pub(super) fn received(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.received)
    }

    pub(super) fn begin_response(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes as u64);
    }

    /// All of the response was handed over.
    pub(super) fn end(mut self: Box<Self>) {
        self.is_whole = true;
    }

    fn entry(&self) -> Entry {
        let logged = self.log.query();
        let text = |value: &Option<HeaderValue>| {
            value.as_ref().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let headers = self.headers.as_ref();
        let referer = headers.and_then(|headers| text(&headers.referer));
        let agent = headers.and_then(|headers| text(&headers.agent));
        Entry {
            time: self.time,
            client: self.client,
            method: Some(self.method.clone()),
            path: Some(query::path(self.uri.path())),
            query: query::query(self.uri.query(), logged),
            version: self.version,
            status: self.status.map(|status| status.as_u16()),
            // HEAD has no body to hand over.
            is_cut: self.status.is_some() && !self.is_whole && self.method != Method::HEAD,
            request_bytes: self.received.load(Ordering::Relaxed),
            response_bytes: self.sent,
            total: self.start.elapsed(),
            upstream: self.exchange.get(),
            route: self.report.route().map(str::to_owned),
            answer: match self.status {
                None => LEFT,
                Some(_) => self.report.answer().unwrap_or(NONE),
            },
            reason: None,
            key: self.report.key_hash(),
            record: self.report.record(),
            attempt: self.report.attempt(),
            trace: self.trace,
            referer: referer.map(|referer| query::referer(&referer, logged)),
            agent: agent.map(|agent| query::cut(&agent)),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.log.put(self.entry().line(self.log.format()));
    }
}
