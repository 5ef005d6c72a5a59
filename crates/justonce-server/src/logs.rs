//! The log: text for people or JSON for machines, on standard error.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::config::{Log, LogFormat};

/// Starts the log. Whatever was started before stays: a process has one log.
pub fn start(log: Log) {
    let filter = EnvFilter::new(log.level.as_str());
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = fmt().with_env_filter(filter).with_ansi(is_terminal).with_writer(std::io::stderr);
    // A second start in one process, as in tests, changes nothing.
    let _ = match log.format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}
