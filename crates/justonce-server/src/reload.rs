//! New routes, certificates and tokens without a restart: on SIGHUP, and when a file changes. The
//! access log is opened again then.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use justonce_proxy::ServerTls;
use metrics::counter;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::access_log::AccessLog;
use crate::admin::{AdminTokens, Token};
use crate::config::{self, AdminToken, Flags, Settings, Tls};
use crate::files::{self, Content, NamedFile};
use crate::gateway::Gateway;
use crate::identity::tls_files;
use crate::logs;
use crate::metrics::{CERTIFICATE_RELOADS, RELOADS};
use crate::upstreams::moved_routes;

/// Editors write a file in several steps: it is read this long after the last one,
const SETTLED: Duration = Duration::from_millis(200);
/// and at most this long after the first one, if its directory keeps changing.
const SETTLED_AT_MOST: Duration = Duration::from_secs(2);
/// How often the files are compared without a notification: there is none for links through other
/// directories, nor on some network disks.
const COMPARE_EVERY: Duration = Duration::from_secs(5);

const MOVED: &str = "these routes have another upstream now: requests that are sent again and \
                     probes of unknown operations go there, so it must have the same books";

/// What is replaced while the gateway runs, beside its routes.
pub(crate) struct Reloadable {
    /// From before the gateway read the files.
    pub(crate) contents: FileContents,
    pub(crate) tls: Option<ServerTls>,
    pub(crate) tokens: Option<AdminTokens>,
    pub(crate) access_log: Option<AccessLog>,
}

/// What is needed to read the configuration again.
pub(crate) struct Reloader {
    flags: Flags,
    settings: Settings,
    gateway: Gateway,
    tls: Option<ServerTls>,
    tokens: Option<AdminTokens>,
    access_log: Option<AccessLog>,
    contents: FileContents,
    /// The settings of TLS that are in force, and the contents of their files.
    served: (Option<Tls>, Vec<NamedFile>),
    hangups: Signal,
    changes: mpsc::Receiver<()>,
    /// Watches until it is dropped.
    _watch: Option<RecommendedWatcher>,
}

/// The contents of the files when they were last read.
pub(crate) struct FileContents {
    config: Content,
    renewed: Vec<NamedFile>,
    at_start: Vec<NamedFile>,
}

impl FileContents {
    /// Reads them. It is called before anything else reads the files: a change after that is
    /// noticed, a change before is not.
    pub(crate) fn read(flags: &Flags, settings: &Settings) -> Self {
        Self {
            config: file(flags).and_then(|file| files::content(&file)),
            renewed: files::renewed(settings),
            at_start: files::at_start(settings),
        }
    }

    fn certificate(&self) -> Vec<NamedFile> {
        self.renewed.iter().filter(|file| file.setting.starts_with("tls.")).cloned().collect()
    }

    fn of_upstreams(&self) -> Vec<&NamedFile> {
        self.renewed.iter().filter(|file| file.setting.starts_with("upstream")).collect()
    }
}

impl Reloader {
    /// Watches the files. A change since the settings were read is noticed too.
    pub(crate) fn new(
        flags: Flags,
        settings: Settings,
        gateway: Gateway,
        reloadable: Reloadable,
    ) -> anyhow::Result<Self> {
        let hangups = signal(SignalKind::hangup()).context("cannot watch for SIGHUP")?;
        let (changed, changes) = mpsc::channel(1);
        let Reloadable { contents, tls, tokens, access_log } = reloadable;
        let named =
            contents.renewed.iter().chain(&contents.at_start).map(|named| named.path.clone());
        let watch = watch(file(&flags).into_iter().chain(named), changed);
        let served = (settings.tls.clone(), contents.certificate());
        let mut reloader = Self {
            flags,
            settings,
            gateway,
            tls,
            tokens,
            access_log,
            contents,
            served,
            hangups,
            changes,
            _watch: watch,
        };
        let read = config::load(&reloader.flags, &config::variables_of_the_process());
        if read.as_ref().ok() != Some(&reloader.settings) {
            reloader.compare(Some("it changed while the gateway started"));
        }
        Ok(reloader)
    }

    /// Reloads on SIGHUP and when a file changes.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut ticks = interval(COMPARE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                Some(()) = self.hangups.recv() => self.compare(Some("SIGHUP")),
                Some(()) = self.changes.recv() => {
                    settle(&mut self.changes).await;
                    self.compare(None);
                }
                _ = ticks.tick() => self.compare(None),
            }
        }
    }

    /// Compares all files with their last contents, and reloads what changed. With a reason, the
    /// configuration is reloaded in any case.
    fn compare(&mut self, why: Option<&str>) {
        let now = FileContents::read(&self.flags, &self.settings);
        let mut before = std::mem::replace(&mut self.contents, now);
        let changed = before.config != self.contents.config;
        let why = why.or(changed.then_some("the file changed"));
        if let Some(why) = why {
            self.access_log.iter().for_each(AccessLog::reopen);
            self.reload(why);
            // It may name other files.
            let named = FileContents::read(&self.flags, &self.settings);
            self.contents = FileContents { config: self.contents.config, ..named };
        }
        if why.is_some() || before.renewed != self.contents.renewed {
            self.renew_certificate();
            self.renew_tokens();
        }
        if why.is_none() && before.of_upstreams() != self.contents.of_upstreams() {
            self.renew_upstreams();
        }
        before.at_start.retain(|file| !self.contents.at_start.contains(file));
        for file in before.at_start {
            let (setting, path) = (file.setting, file.path.display());
            warn!(setting, %path, "this file changed; that counts only with a restart");
        }
    }

    fn renew_certificate(&mut self) {
        let (Some(live), Some(tls)) = (&self.tls, &self.settings.tls) else { return };
        let now = (Some(tls.clone()), self.contents.certificate());
        if now == self.served {
            return;
        }
        let (cert, key) = (tls.cert.display(), tls.key.display());
        let result = match live.reload(&tls_files(tls)) {
            Ok(()) => {
                info!(%cert, %key, "the new certificate is served");
                self.served = now;
                "changed"
            }
            Err(error) => {
                error!(%cert, %key, %error, "the old certificate is still served");
                "refused"
            }
        };
        counter!(CERTIFICATE_RELOADS.name, "result" => result).increment(1);
    }

    /// New certificates to upstreams count for new connections; what is wrong with them is logged,
    /// and the old ones stay.
    fn renew_upstreams(&self) {
        if let Err(error) = self.gateway.change_routes(&self.settings) {
            error!(%error, "the upstreams stay as they are");
        }
    }

    fn renew_tokens(&self) {
        let Some(live) = &self.tokens else { return };
        renew_token("admin_token", self.settings.admin_token.as_ref(), &live.operators);
        renew_token("callback_token", self.settings.callback_token.as_ref(), &live.callbacks);
    }

    /// A wrong configuration is logged, and the old routes stay in force.
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
                let moved = moved_routes(&self.settings, &settings);
                if !moved.is_empty() {
                    warn!(routes = ?moved, "{MOVED}");
                }
                logs::warn_about(&settings);
                info!(why, routes = settings.routes.len(), "new routes are in force");
                self.settings = settings;
                "changed"
            }
            Err(problem) => {
                error!(why, "the new configuration is wrong, the old one stays:\n{problem:#}");
                "refused"
            }
        };
        counter!(RELOADS.name, "result" => result).increment(1);
    }
}

/// Replaces a token that was demanded from the start. A first token needs a restart, which is
/// logged elsewhere.
fn renew_token(setting: &'static str, token: Option<&AdminToken>, live: &Token) {
    let Some(token) = token.filter(|_| live.is_demanded()) else { return };
    match token.read() {
        Ok(secret) => {
            if live.replace(&secret) {
                info!(setting, "a new token counts");
            }
        }
        Err(error) => error!(setting, %error, "the old token still counts"),
    }
}

/// The file of the configuration, if there is one.
fn file(flags: &Flags) -> Option<PathBuf> {
    let variables = config::variables_of_the_process();
    flags.config.clone().or_else(|| variables.get("JUSTONCE_CONFIG").map(PathBuf::from))
}

/// Watches the directories of the files: editors replace a file, and Kubernetes replaces a link to
/// it. What cannot be watched is compared periodically.
fn watch(
    files: impl Iterator<Item = PathBuf>,
    changed: mpsc::Sender<()>,
) -> Option<RecommendedWatcher> {
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // One pending change is enough.
            let _ = changed.try_send(());
        }
    });
    let mut watcher = watcher.inspect_err(|error| cannot_watch("files", error)).ok()?;
    let mut directories: Vec<PathBuf> = files
        .filter_map(|file| std::path::absolute(file).ok())
        .map(|file| file.parent().unwrap_or(Path::new("/")).to_owned())
        .collect();
    directories.sort();
    directories.dedup();
    for directory in directories {
        let watched = watcher.watch(&directory, RecursiveMode::NonRecursive);
        watched.unwrap_or_else(|error| cannot_watch(directory.display(), &error));
    }
    Some(watcher)
}

fn cannot_watch(what: impl std::fmt::Display, error: &notify::Error) {
    let every = COMPARE_EVERY.as_secs();
    warn!(%error, "{what} cannot be watched; changes are looked for every {every} s");
}

/// Waits until no more changes come, or long enough.
async fn settle(changes: &mut mpsc::Receiver<()>) {
    let last = Instant::now() + SETTLED_AT_MOST;
    while let Ok(Some(())) = timeout_at(last.min(Instant::now() + SETTLED), changes.recv()).await {}
}
