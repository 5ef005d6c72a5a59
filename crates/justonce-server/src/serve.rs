//! `justonce serve`: starts everything, and runs it until a signal.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use justonce::Engine;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::access_log::{AccessLog, Front, Refused};
use crate::admin::{AdminParts, AdminTokens};
use crate::background::Background;
use crate::config::{self, Flags, Settings};
use crate::gateway::Gateway;
use crate::handover::{Handover, Line, Lost, Parts, Requests, Start};
use crate::listeners::Listeners;
use crate::reload::{FileContents, Reloadable, Reloader};
use crate::signals::Signals;
use crate::sockets::Sockets;
use crate::traces::Traces;
use crate::{logs, stores, systemd};

/// The bounds of the buckets of all durations, in seconds.
const BUCKETS_S: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];
/// How long a predecessor that has died may take to leave its store.
const STORE_FREE_WITHIN: Duration = Duration::from_secs(10);

/// The options of `justonce serve`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    flags: Flags,

    /// Take over from the gateway that starts this process, through its standard input
    #[arg(long, hide = true)]
    take_over: bool,
}

/// Runs the gateway until SIGTERM or SIGINT, or until a successor has taken over.
///
/// # Errors
///
/// If the configuration is wrong, or something cannot be started.
pub(crate) fn run(options: &ServeOptions) -> anyhow::Result<ExitCode> {
    let flags = &options.flags;
    let start = Start::of_process()?;
    // There are no threads yet.
    let sockets = Sockets::of_process(options.take_over)?;
    let settings = config::load(flags, &config::variables_of_the_process())?;
    logs::start(settings.log);
    if !settings.ignored_variables.is_empty() {
        let names = settings.ignored_variables.join(", ");
        info!(variables = names, "these are service links of Kubernetes and no settings: ignored");
    }
    logs::warn_about(&settings);
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(flags, settings, start, sockets))?;
    // The grace period is over.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// Every connection is an open file, and the soft limit of many systems is 1024.
fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        warn!(%error, "the number of open files cannot be raised");
    }
}

async fn serve(
    flags: &Flags,
    settings: Settings,
    start: Start,
    mut sockets: Sockets,
) -> anyhow::Result<()> {
    let mut signals = Signals::watch()?;
    let metrics = recorder()?;
    crate::metrics::describe();
    let access_log = AccessLog::open(&settings.access_log)?;
    let refused = Refused::new(access_log.clone());
    let contents = FileContents::read(flags, &settings);
    let mut listeners = Listeners::open(&settings, &mut sockets, refused)?;
    let mut predecessor = take_over(&settings, sockets, &mut signals).await?;
    let wait = if predecessor.is_some() { STORE_FREE_WITHIN } else { Duration::ZERO };
    let (engine, store) = stores::engine(&settings, wait).await?;
    let service = Gateway::new(engine.clone(), &settings)?;
    let (traces, requests) = (Traces::new(settings.trace.make), Requests::default());
    let front = Front::new(service.clone(), access_log.clone(), traces, requests.clone());
    let [stop, stop_admin, stopping] = std::array::from_fn(|_| CancellationToken::new());
    announce(&format!("listening on {}", listeners.shown()));
    let mut tasks = JoinSet::new();
    let tls = listeners.tls.clone();
    let mut reloadable = Reloadable { contents, tls, tokens: None, access_log: access_log.clone() };
    let shown = AdminParts {
        engine: engine.clone(),
        metrics: metrics.clone(),
        upstreams: service.upstreams(),
        stopping: stopping.clone(),
        store: store.clone(),
        listener: listeners.clients.handle(),
    };
    reloadable.tokens = serve_admin(&mut listeners, &settings, shown, &mut tasks, &stop_admin)?;
    let reloader = Reloader::new(flags.clone(), settings.clone(), service.clone(), reloadable)?;
    tasks.spawn(reloader.run(stop.clone()));
    let background = Background::start(&engine, metrics);
    // A predecessor gives up before anything can run here: it must not end this process later.
    ready(predecessor.as_mut()).await;
    let Listeners { clients, served, .. } = listeners;
    let stopped = stop.clone().cancelled_owned();
    let listening = tokio::spawn(clients.serve(move || front.clone(), stopped, settings.grace));
    introduce(&engine, &settings);
    let handover = Handover::new(Parts {
        start,
        sockets: served,
        gateway: service.clone(),
        engine: engine.clone(),
        store,
        requests,
        pause: settings.handover_pause,
        grace: settings.grace,
    });
    let ended = run_until_the_end(&mut signals, handover, &mut tasks).await;
    stopping.cancel();
    if matches!(ended, End::Stop) {
        delay(settings.drain_delay, &mut signals).await;
    }
    let deadline = Instant::now() + settings.grace;
    stop.cancel();
    service.stop_completing();
    drop(background);
    let served = listening.await.context("the listener failed")?;
    drain(&engine, deadline).await;
    stop_admin.cancel();
    if let Some(log) = access_log {
        log.finish().await;
    }
    info!(?served, "stopped");
    ended.result()
}

/// Serves the admin API, if there is to be one. Returns its tokens.
fn serve_admin(
    listeners: &mut Listeners,
    settings: &Settings,
    parts: AdminParts,
    tasks: &mut JoinSet<anyhow::Result<()>>,
    stop: &CancellationToken,
) -> anyhow::Result<Option<AdminTokens>> {
    let Some(admin) = listeners.admin(settings, parts)? else { return Ok(None) };
    let tokens = admin.tokens();
    announce(&format!("admin on http://{}", admin.address()));
    let stop = stop.clone();
    tasks.spawn(async move {
        admin.serve(stop).await;
        Ok(())
    });
    Ok(Some(tokens))
}

/// Waits until a predecessor, if there is one, leaves the store to this process. What can be found
/// wrong without the store is looked at before.
async fn take_over(
    settings: &Settings,
    mut sockets: Sockets,
    signals: &mut Signals,
) -> anyhow::Result<Option<Line>> {
    let predecessor = sockets.predecessor();
    sockets.finish()?;
    let Some(predecessor) = predecessor else { return Ok(None) };
    if let Some(problem) = crate::upstreams::problems(settings).first() {
        bail!("{problem}");
    }
    let mut predecessor = predecessor.line()?;
    tokio::select! {
        store = predecessor.store() => store?,
        name = signals.stop() => bail!("{name} came before this process served"),
    }
    Ok(Some(predecessor))
}

/// Tells whoever has started this process that it serves.
async fn ready(predecessor: Option<&mut Line>) {
    match predecessor {
        // It tells the service manager, which listens to nobody else yet.
        Some(predecessor) => predecessor.serving().await,
        None => systemd::notify("READY=1"),
    }
}

/// Why the gateway ends.
enum End {
    /// It was told to, or a part of it has ended.
    Stop,
    /// Its successor serves.
    HandedOver,
    /// Its store is gone.
    Lost,
}

impl End {
    fn result(self) -> anyhow::Result<()> {
        match self {
            Self::Stop | Self::HandedOver => Ok(()),
            Self::Lost => Err(Lost.into()),
        }
    }
}

/// Runs until there is a reason to end. The copies of the sockets are closed then: with them,
/// clients could connect whom nobody answers.
async fn run_until_the_end(
    signals: &mut Signals,
    handover: Handover,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) -> End {
    loop {
        let signal = tokio::select! {
            signal = signals.any() => signal,
            Some(ended) = tasks.join_next() => {
                warn!(?ended, "a part of the gateway ended: stopping");
                return End::Stop;
            }
        };
        if let Some(signal) = signal {
            info!(signal, "stopping");
            systemd::notify("STOPPING=1");
            return End::Stop;
        }
        info!(signal = "SIGUSR2", "restarting");
        // Dropping the attempt ends the successor.
        let attempt = tokio::select! {
            attempt = handover.attempt() => attempt,
            signal = signals.stop() => {
                info!(signal, "stopping; there will be no successor");
                systemd::notify("STOPPING=1");
                return End::Stop;
            }
        };
        match attempt {
            Ok(pid) => {
                info!(pid, "the successor serves: this process ends");
                systemd::notify(&format!("MAINPID={pid}\nREADY=1"));
                return End::HandedOver;
            }
            Err(why) if why.is::<Lost>() => return End::Lost,
            Err(why) => {
                // Those that came meanwhile were about this attempt.
                signals.forget_restarts();
                error!("the restart failed, this process goes on: {why:#}");
            }
        }
    }
}

/// Logs what starts.
fn introduce(engine: &Engine, settings: &Settings) {
    let (owner, pid) = (engine.owner().as_str(), std::process::id());
    info!(owner, host = host(), pid, "an engine starts");
    let urls: Vec<_> = settings.upstreams.iter().flat_map(|upstream| &upstream.urls).collect();
    info!(upstreams = ?urls, store = %settings.store, "the gateway runs");
}

/// Goes on as before, until load balancers have noticed that the gateway is not ready any more. A
/// second signal ends it.
async fn delay(time: Duration, signals: &mut Signals) {
    if time.is_zero() {
        return;
    }
    info!(?time, "requests are still taken");
    if let Ok(name) = tokio::time::timeout(time, signals.stop()).await {
        info!(signal = name, "stopping now");
    }
}

/// Waits for operations whose callers have disconnected. What does not finish in time becomes
/// unknown or is taken over, as its route says.
async fn drain(engine: &Engine, deadline: Instant) {
    if tokio::time::timeout_at(deadline, engine.drained()).await.is_err() {
        warn!(executing = engine.load().executing, "these operations did not finish in time");
    }
}

fn recorder() -> anyhow::Result<PrometheusHandle> {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), BUCKETS_S)?;
    builder.install_recorder().context("metrics cannot be recorded")
}

/// The name of the machine, or of the container.
fn host() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}

/// Prints a line for the process that started this one.
fn announce(line: &str) {
    let mut out = std::io::stdout().lock();
    // The output may be closed.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
