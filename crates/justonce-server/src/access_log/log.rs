//! The access log as the rest of the gateway sees it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::request;

use super::line::Line;
use super::sample::Sample;
use super::target::Target;
use super::writer::Writer;
use crate::config::{self, AccessLogFormat, AccessLogTarget, LoggedQuery};

/// How long the last lines may take to be written.
const FINISH_LIMIT: Duration = Duration::from_secs(2);

/// The log of all requests. Clones write to the same one.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writer: Writer,
    sample: Sample,
    format: AccessLogFormat,
    query: LoggedQuery,
}

impl AccessLog {
    /// Opens the log; nothing if none is wished.
    ///
    /// # Errors
    ///
    /// If its file cannot be opened.
    pub(crate) fn open(settings: &config::AccessLog) -> anyhow::Result<Option<Self>> {
        let Some(to) = &settings.to else { return Ok(None) };
        let target = Target::open(to).with_context(|| match to {
            AccessLogTarget::Stdout => "cannot write the access log".to_owned(),
            AccessLogTarget::File(path) => {
                format!("cannot open the access log {}", path.display())
            }
        })?;
        let writer = Writer::start(target).context("cannot start to write the access log")?;
        let (format, query) = (settings.format, settings.query);
        let sample = Sample::new(settings.gets);
        Ok(Some(Self(Arc::new(Inner { writer, sample, format, query }))))
    }

    /// Begins the line of a request; nothing if it is not logged.
    pub(super) fn begin(&self, parts: &mut request::Parts) -> Option<Box<Line>> {
        if !self.0.sample.has(&parts.method) {
            return None;
        }
        Some(Box::new(Line::begin(self.clone(), parts)))
    }

    pub(super) fn format(&self) -> AccessLogFormat {
        self.0.format
    }

    pub(super) fn query(&self) -> LoggedQuery {
        self.0.query
    }

    pub(super) fn put(&self, line: String) {
        self.0.writer.put(line);
    }

    /// Opens the file again: the old one may have been moved away.
    pub(crate) fn reopen(&self) {
        self.0.writer.reopen();
    }

    /// Writes what is queued.
    pub(crate) async fn finish(&self) {
        let log = self.clone();
        let finished = tokio::task::spawn_blocking(move || log.0.writer.finish(FINISH_LIMIT));
        if !finished.await.unwrap_or(false) {
            tracing::warn!("the last lines of the access log could not be written in time");
        }
    }
}
