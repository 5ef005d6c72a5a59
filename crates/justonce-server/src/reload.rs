//! New routes, certificates and tokens without a restart: on SIGHUP, and when a file changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use metrics::counter;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::admin::{AdminTokens, Token};
use crate::config::{self, AdminToken, Flags, Settings};
use crate::files::{self, Content, Named};
use crate::gateway::Gateway;
use crate::listen::ServerTls;
use crate::metrics::RELOADS;
use crate::serve::say_what_is_risky;

/// Editors write a file in several steps: this long after the last one it is read.
const SETTLED: Duration = Duration::from_millis(200);
/// And this long after the first one, whatever else goes on in its directory.
const SETTLED_AT_MOST: Duration = Duration::from_secs(2);
/// How often the files are looked at, whether the system tells of a change or not: it tells
/// nothing about links that lead through other directories, nor about some network disks.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What is exchanged while the gateway runs, beside its routes.
pub(crate) struct Live {
    /// From before anything was read from the files.
    pub(crate) seen: Seen,
    pub(crate) tls: Option<ServerTls>,
    pub(crate) tokens: Option<AdminTokens>,
}

/// What is needed to read the configuration again.
pub(crate) struct Reloader {
    flags: Flags,
    settings: Settings,
    gateway: Gateway,
    tls: Option<ServerTls>,
    tokens: Option<AdminTokens>,
    seen: Seen,
    // What was in the files of the certificate that is served.
    served: Vec<Named>,
    hangups: Signal,
    changes: mpsc::Receiver<()>,
    /// The watch ends with it.
    _watch: Option<RecommendedWatcher>,
}

/// What was in the files when they were last looked at.
pub(crate) struct Seen {
    config: Content,
    renewed: Vec<Named>,
    of_the_start: Vec<Named>,
}

impl Seen {
    pub(crate) fn now(flags: &Flags, settings: &Settings) -> Self {
        Self {
            config: file(flags).and_then(|file| files::content(&file)),
            renewed: files::renewed(settings),
            of_the_start: files::of_the_start(settings),
        }
    }

    fn certificate(&self) -> Vec<Named> {
        self.renewed.iter().filter(|file| file.setting.starts_with("tls.")).cloned().collect()
    }
}

impl Reloader {
    /// Watches from now on; what changed since the settings were read is read too.
    pub(crate) fn new(
        flags: Flags,
        settings: Settings,
        gateway: Gateway,
        live: Live,
    ) -> anyhow::Result<Self> {
        let hangups = signal(SignalKind::hangup()).context("cannot watch for SIGHUP")?;
        let (changed, changes) = mpsc::channel(1);
        let Live { seen, tls, tokens } = live;
        let named = seen.renewed.iter().chain(&seen.of_the_start).map(|named| named.path.clone());
        let watch = watch(file(&flags).into_iter().chain(named), changed);
        let served = seen.certificate();
        let mut reloader = Self {
            flags,
            settings,
            gateway,
            tls,
            tokens,
            seen,
            served,
            hangups,
            changes,
            _watch: watch,
        };
        let read = config::load(&reloader.flags, &config::variables_of_the_process());
        if read.as_ref().ok() != Some(&reloader.settings) {
            reloader.look(Some("it changed while the gateway started"));
        }
        Ok(reloader)
    }

    /// Reads the configuration again whenever somebody asks for it or a file changes.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                Some(()) = self.hangups.recv() => self.look(Some("SIGHUP")),
                Some(()) = self.changes.recv() => {
                    settle(&mut self.changes).await;
                    self.look(None);
                }
                _ = looks.tick() => self.look(None),
            }
        }
    }

    /// Looks at all files, and does what follows from those that changed since the last time. The
    /// configuration is read again also if somebody says `why`.
    fn look(&mut self, why: Option<&str>) {
        let now = Seen::now(&self.flags, &self.settings);
        let mut before = std::mem::replace(&mut self.seen, now);
        let changed = before.config != self.seen.config;
        let why = why.or(changed.then_some("the file changed"));
        if let Some(why) = why {
            self.reload(why);
            // Other files may be named in it.
            let named = Seen::now(&self.flags, &self.settings);
            self.seen = Seen { config: self.seen.config, ..named };
        }
        if why.is_some() || before.renewed != self.seen.renewed {
            self.renew_certificate();
            self.renew_tokens();
        }
        before.of_the_start.retain(|file| !self.seen.of_the_start.contains(file));
        for file in before.of_the_start {
            let (setting, path) = (file.setting, file.path.display());
            warn!(setting, %path, "this file changed; that counts only with a restart");
        }
    }

    fn renew_certificate(&mut self) {
        let (Some(live), Some(tls)) = (&self.tls, &self.settings.tls) else { return };
        let now = self.seen.certificate();
        if now == self.served {
            return;
        }
        let (cert, key) = (tls.cert.display(), tls.key.display());
        match live.renew(&tls.cert, &tls.key) {
            Ok(()) => {
                info!(%cert, %key, "the new certificate is served");
                self.served = now;
            }
            Err(error) => {
                error!(%cert, %key, %error, "the old certificate is still served");
            }
        }
    }

    fn renew_tokens(&self) {
        let Some(live) = &self.tokens else { return };
        renew_token("admin_token", self.settings.admin_token.as_ref(), &live.operators);
        renew_token("callback_token", self.settings.callback_token.as_ref(), &live.callbacks);
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
                say_what_is_risky(&settings);
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

/// A token that was demanded from the start can be exchanged. One that was not needs a restart,
/// and that was said.
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

/// Watches the directories: a new file is put in the place of the old one, and so is a link to it.
/// What cannot be watched is looked at from time to time all the same.
fn watch(
    files: impl Iterator<Item = PathBuf>,
    changed: mpsc::Sender<()>,
) -> Option<RecommendedWatcher> {
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // One change that waits is as good as many.
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
    let every = LOOK_EVERY.as_secs();
    warn!(%error, "{what} cannot be watched; changes are looked for every {every} s");
}

/// Waits until no more changes come, or long enough.
async fn settle(changes: &mut mpsc::Receiver<()>) {
    let last = Instant::now() + SETTLED_AT_MOST;
    while let Ok(Some(())) = timeout_at(last.min(Instant::now() + SETTLED), changes.recv()).await {}
}
