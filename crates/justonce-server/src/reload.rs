//! New routes without a restart: on SIGHUP, and when the file changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use metrics::counter;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::config::{self, Flags, Settings};
use crate::gateway::Gateway;
use crate::metrics::RELOADS;

/// Editors write a file in several steps: this long after the last one it is read.
const SETTLED: Duration = Duration::from_millis(200);

/// What is needed to read the configuration again.
pub(crate) struct Reloader {
    flags: Flags,
    settings: Settings,
    gateway: Gateway,
    hangups: Signal,
    changes: mpsc::Receiver<()>,
    /// The watch ends with it.
    _watch: Option<RecommendedWatcher>,
}

impl Reloader {
    /// Watches from now on; what changed since the settings were read is read too.
    pub(crate) fn new(flags: Flags, settings: Settings, gateway: Gateway) -> anyhow::Result<Self> {
        let hangups = signal(SignalKind::hangup()).context("cannot watch for SIGHUP")?;
        let (changed, changes) = mpsc::channel(1);
        let watch = match file(&flags) {
            Some(file) => Some(watch(&file, changed)?),
            None => None,
        };
        let mut reloader = Self { flags, settings, gateway, hangups, changes, _watch: watch };
        let read = config::load(&reloader.flags, &config::variables_of_the_process());
        if read.as_ref().ok() != Some(&reloader.settings) {
            reloader.reload("it changed while the gateway started");
        }
        Ok(reloader)
    }

    /// Reads the configuration again whenever somebody asks for it or its file changes.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                Some(()) = self.hangups.recv() => self.reload("SIGHUP"),
                Some(()) = self.changes.recv() => {
                    settle(&mut self.changes).await;
                    self.reload("the file changed");
                }
            }
        }
    }

    /// A bad file leaves the old routes in force, loudly.
    fn reload(&mut self, why: &str) {
        let read = config::load(&self.flags, &config::variables_of_the_process());
        let changed = read.map_err(anyhow::Error::from).and_then(|settings| {
            self.gateway.change_routes(&settings)?;
            Ok(settings)
        });
        let result = match changed {
            Ok(settings) => {
                let restart = self.settings.changed_for_restart(&settings);
                if !restart.is_empty() {
                    warn!(settings = ?restart, "these settings change only with a restart");
                }
                info!(why, routes = settings.routes.len(), "new routes are in force");
                self.settings = settings;
                "changed"
            }
            Err(problem) => {
                error!(why, "the new configuration is wrong, the old one stays:\n{problem:#}");
                "refused"
            }
        };
        counter!(RELOADS, "result" => result).increment(1);
    }
}

/// The file of the configuration, if there is one.
fn file(flags: &Flags) -> Option<PathBuf> {
    let variables = config::variables_of_the_process();
    flags.config.clone().or_else(|| variables.get("JUSTONCE_CONFIG").map(PathBuf::from))
}

/// Watches the directory: editors put a new file in the place of the old one.
fn watch(file: &Path, changed: mpsc::Sender<()>) -> anyhow::Result<RecommendedWatcher> {
    let file = std::path::absolute(file)?;
    let name = file.file_name().map(ToOwned::to_owned);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let is_ours = |event: &notify::Event| {
            !event.kind.is_access()
                && event.paths.iter().any(|path| path.file_name() == name.as_deref())
        };
        if event.as_ref().is_ok_and(is_ours) {
            // One change that waits is as good as many.
            let _ = changed.try_send(());
        }
    })?;
    let directory = file.parent().unwrap_or(Path::new("/"));
    watcher
        .watch(directory, RecursiveMode::NonRecursive)
        .with_context(|| format!("cannot watch {}", directory.display()))?;
    Ok(watcher)
}

/// Waits until no more changes come.
async fn settle(changes: &mut mpsc::Receiver<()>) {
    while let Ok(Some(())) = tokio::time::timeout(SETTLED, changes.recv()).await {}
}
