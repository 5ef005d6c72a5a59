//! The log: text for people or JSON for machines, on standard error.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::config::{self, Log, LogFormat, Settings};

/// Starts the log, unless the process has one.
pub(crate) fn start(log: Log) {
    let filter = EnvFilter::new(log.level.as_str());
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = fmt().with_env_filter(filter).with_ansi(is_terminal).with_writer(std::io::stderr);
    // An earlier start stays in force.
    let _ = match log.format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}

/// Logs what `justonce check` says about risks.
pub(crate) fn warn_about(settings: &Settings) {
    for warning in config::never_reached(settings).iter().chain(&config::warnings(settings)) {
        tracing::warn!(target: "justonce::config", "{warning}");
    }
    for note in config::notes(settings) {
        tracing::info!(target: "justonce::config", "{note}");
    }
}
