//! What is logged of a request, and how it is written.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use http::{Method, Version};
use justonce::RecordId;
use justonce::http::TraceId;

use super::escape::{put_escaped, put_json, put_value};
use super::time;
use crate::config::AccessLogFormat;

/// The status in the combined format when there was no response; other web servers have it too.
const LEFT: u16 = 499;

/// A request and its end.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) time: SystemTime,
    pub(super) client: Option<IpAddr>,
    /// Nothing if the head of the request could not be read.
    pub(super) method: Option<Method>,
    pub(super) path: Option<String>,
    pub(super) query: Option<String>,
    pub(super) version: Version,
    /// Nothing if the client left before the response began.
    pub(super) status: Option<u16>,
    /// Whether the response was broken off.
    pub(super) is_cut: bool,
    pub(super) request_bytes: u64,
    pub(super) response_bytes: u64,
    pub(super) total: Duration,
    pub(super) upstream: Option<Duration>,
    pub(super) route: Option<String>,
    pub(super) answer: &'static str,
    /// Why the gateway has not seen the request.
    pub(super) reason: Option<&'static str>,
    pub(super) key: Option<String>,
    pub(super) record: Option<RecordId>,
    pub(super) attempt: Option<u32>,
    pub(super) trace: Option<TraceId>,
    /// Only for the combined format.
    pub(super) referer: Option<String>,
    pub(super) agent: Option<String>,
}

/// A field of a line.
enum Field<'e> {
    Text(&'e str),
    Number(u64),
    Millis(Duration),
    Flag(bool),
}

impl Entry {
    /// The line, with its end.
    pub(super) fn line(&self, format: AccessLogFormat) -> String {
        let mut line = match format {
            AccessLogFormat::Text => self.text(),
            AccessLogFormat::Json => self.json(),
            AccessLogFormat::Combined => self.combined(),
        };
        line.push('\n');
        line
    }

    fn text(&self) -> String {
        let mut line = time::rfc3339(self.time);
        self.fields(|name, field| {
            // Writing to a text cannot fail.
            let _ = write!(line, " {name}=");
            match field {
                Field::Text(text) => put_value(&mut line, text.as_bytes()),
                Field::Number(number) => drop(write!(line, "{number}")),
                Field::Millis(time) => put_millis(&mut line, time),
                Field::Flag(flag) => drop(write!(line, "{flag}")),
            }
        });
        line
    }

    fn json(&self) -> String {
        let mut line = format!("{{\"time\":\"{}\"", time::rfc3339(self.time));
        self.fields(|name, field| {
            let _ = write!(line, ",\"{name}\":");
            match field {
                Field::Text(text) => put_json(&mut line, text.as_bytes()),
                Field::Number(number) => drop(write!(line, "{number}")),
                Field::Millis(time) => put_millis(&mut line, time),
                Field::Flag(flag) => drop(write!(line, "{flag}")),
            }
        });
        line.push('}');
        line
    }

    /// What is known, in order. What is not known has no field.
    fn fields(&self, mut put: impl FnMut(&str, Field<'_>)) {
        let client = self.client.map(|client| client.to_string());
        let record = self.record.map(|record| record.to_string());
        let trace = self.trace.map(|trace| trace.to_string());
        let mut text = |name: &str, text: Option<&str>| {
            text.into_iter().for_each(|text| put(name, Field::Text(text)));
        };
        text("client", client.as_deref());
        text("method", self.method.as_ref().map(Method::as_str));
        text("path", self.path.as_deref());
        text("query", self.query.as_deref());
        text("version", Some(version(self.version)));
        if let Some(status) = self.status {
            put("status", Field::Number(status.into()));
        }
        if self.is_cut {
            put("cut", Field::Flag(true));
        }
        put("request_bytes", Field::Number(self.request_bytes));
        put("response_bytes", Field::Number(self.response_bytes));
        put("ms", Field::Millis(self.total));
        let upstream = self.upstream.unwrap_or_default();
        put("ours_ms", Field::Millis(self.total.saturating_sub(upstream)));
        if self.upstream.is_some() {
            put("upstream_ms", Field::Millis(upstream));
        }
        let mut text = |name: &str, text: Option<&str>| {
            text.into_iter().for_each(|text| put(name, Field::Text(text)));
        };
        text("route", self.route.as_deref());
        text("answer", Some(self.answer));
        text("reason", self.reason);
        text("key", self.key.as_deref());
        text("record", record.as_deref());
        text("trace_id", trace.as_deref());
        if let Some(attempt) = self.attempt {
            put("attempt", Field::Number(attempt.into()));
        }
    }

    /// As Apache and nginx write it, without a field more: their tools read it.
    fn combined(&self) -> String {
        let mut line = match self.client {
            None => "-".to_owned(),
            Some(client) => client.to_string(),
        };
        let _ = write!(line, " - - [{}] \"", time::common(self.time));
        put_escaped(&mut line, self.method.as_ref().map_or("-", Method::as_str).as_bytes());
        line.push(' ');
        put_escaped(&mut line, self.path.as_deref().unwrap_or("-").as_bytes());
        if let Some(query) = &self.query {
            line.push('?');
            put_escaped(&mut line, query.as_bytes());
        }
        let status = self.status.unwrap_or(LEFT);
        let version = version(self.version);
        let _ = write!(line, " {version}\" {status} {}", self.response_bytes);
        for header in [&self.referer, &self.agent] {
            line.push_str(" \"");
            put_escaped(&mut line, header.as_deref().unwrap_or("-").as_bytes());
            line.push('"');
        }
        line
    }
}

fn put_millis(line: &mut String, time: Duration) {
    let micros = time.as_micros();
    let _ = write!(line, "{}.{:03}", micros / 1000, micros % 1000);
}

const fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_11 => "HTTP/1.1",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_115_480_123),
            client: "203.0.113.9".parse().ok(),
            method: Some(Method::POST),
            path: Some("/payments".to_owned()),
            query: None,
            version: Version::HTTP_11,
            status: Some(201),
            is_cut: false,
            request_bytes: 12,
            response_bytes: 27,
            total: Duration::from_micros(5213),
            upstream: Some(Duration::from_micros(4876)),
            route: Some("POST /payments".to_owned()),
            answer: "executed",
            reason: None,
            key: Some("#0123456789ab".to_owned()),
            record: None,
            attempt: Some(1),
            trace: None,
            referer: None,
            agent: Some("curl/8".to_owned()),
        }
    }

    #[test]
    fn text_has_what_is_known() {
        assert_eq!(
            entry().line(AccessLogFormat::Text),
            "2026-11-19T19:11:20.123Z client=203.0.113.9 method=POST path=/payments \
             version=HTTP/1.1 status=201 request_bytes=12 response_bytes=27 ms=5.213 ours_ms=0.337 \
             upstream_ms=4.876 route=\"POST /payments\" answer=executed key=#0123456789ab \
             attempt=1\n"
        );
    }

    #[test]
    fn json_has_the_same() {
        let line = entry().line(AccessLogFormat::Json);
        assert_eq!(
            line,
            "{\"time\":\"2026-11-19T19:11:20.123Z\",\"client\":\"203.0.113.9\",\
             \"method\":\"POST\",\"path\":\"/payments\",\"version\":\"HTTP/1.1\",\"status\":201,\
             \"request_bytes\":12,\"response_bytes\":27,\"ms\":5.213,\"ours_ms\":0.337,\
             \"upstream_ms\":4.876,\"route\":\"POST /payments\",\"answer\":\"executed\",\
             \"key\":\"#0123456789ab\",\"attempt\":1}\n"
        );
        serde_json::from_str::<serde_json::Value>(&line).unwrap();
    }

    #[test]
    fn combined_is_what_web_servers_write() {
        assert_eq!(
            entry().line(AccessLogFormat::Combined),
            "203.0.113.9 - - [19/Nov/2026:19:11:20 +0000] \"POST /payments HTTP/1.1\" 201 27 \"-\" \
             \"curl/8\"\n"
        );
    }

    #[test]
    fn no_request_can_write_a_line_of_its_own() {
        let forged = Entry {
            method: Method::from_bytes(b"A|B").ok(),
            path: Some("/a\" 200 1 \"-\" \"-\"\n127.0.0.1 - - [x] \"GET / HTTP/1.1".to_owned()),
            query: Some("a=1\r\nb\u{1b}[2J\"}".to_owned()),
            route: Some("a\nb".to_owned()),
            key: Some("k\"\n".to_owned()),
            referer: Some("\"\n\\".to_owned()),
            agent: Some("\u{2028}\" x".to_owned()),
            status: None,
            upstream: None,
            is_cut: true,
            ..entry()
        };
        for format in [AccessLogFormat::Text, AccessLogFormat::Json, AccessLogFormat::Combined] {
            let line = forged.line(format);
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert!(!line.contains(['\r', '\u{1b}']), "{line}");
        }
        let json = serde_json::from_str::<serde_json::Value>(&forged.line(AccessLogFormat::Json));
        assert_eq!(json.unwrap()["path"], forged.path.as_deref().unwrap());
        let combined = forged.line(AccessLogFormat::Combined);
        // Two quotes for each of the three quoted parts; the others are escaped.
        let quotes = combined.replace("\\\\", "").replace("\\\"", "").matches('"').count();
        assert_eq!(quotes, 6, "{combined}");
        assert!(combined.contains(" HTTP/1.1\" 499 27 "), "{combined}");
    }
}
