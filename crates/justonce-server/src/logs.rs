//! The log: text for people or JSON for machines, on standard error.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::config::{self, Log, LogFormat, Settings};

/// Libraries that log by themselves: only their errors matter to operators. The storage engine
/// tells nobody else why it stopped.
const LIBRARIES: [&str; 5] = ["fjall", "lsm_tree", "rustls", "tokio_postgres", "notify"];

/// Starts the log, unless the process has one.
pub(crate) fn start(log: Log) {
    let errors: String = LIBRARIES.iter().map(|name| format!(",{name}=error")).collect();
    let filter = EnvFilter::new(format!("{}{errors}", log.level.as_str()));
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = fmt().with_env_filter(filter).with_ansi(is_terminal).with_writer(std::io::stderr);
    // A line that cannot be written would be complained about on standard error, which panics if
    // nobody reads that any more: no request may fail for that.
    let lines = lines.log_internal_errors(false);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_storage_engine_tells_its_errors_and_nothing_else() {
        start(Log { level: tracing::Level::INFO, format: LogFormat::Text });
        assert!(log::log_enabled!(target: "fjall::worker_pool", log::Level::Error));
        assert!(!log::log_enabled!(target: "fjall::worker_pool", log::Level::Warn));
        assert!(!log::log_enabled!(target: "rustls::server", log::Level::Warn));
    }
}
