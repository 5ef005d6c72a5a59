//! `justonce serve`: starts everything, and runs it until a signal.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use justonce::Engine;
use justonce_proxy::{ForwardedHeader, Listener, ListenerSettings, ServerTls, TrustedProxies};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::access_log::{AccessLog, Front};
use crate::admin::{Admin, AdminAddress, AdminParts};
use crate::background::Background;
use crate::config::{self, Flags, Proxies, ProxyHeader, Settings};
use crate::gateway::Gateway;
use crate::identity::tls_files;
use crate::reload::{FileContents, Reloadable, Reloader};
use crate::traces::Traces;
use crate::{logs, stores};

/// The bounds of the buckets of all durations, in seconds.
const BUCKETS_S: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// Runs the gateway until SIGTERM or SIGINT.
///
/// # Errors
///
/// If the configuration is wrong, or something cannot be started.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let settings = config::load(flags, &config::variables_of_the_process())?;
    logs::start(settings.log);
    if !settings.ignored_variables.is_empty() {
        let names = settings.ignored_variables.join(", ");
        info!(variables = names, "these are service links of Kubernetes and no settings: ignored");
    }
    logs::warn_about(&settings);
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(flags, settings))?;
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

async fn serve(flags: &Flags, settings: Settings) -> anyhow::Result<()> {
    let mut signals = StopSignals::watch()?;
    let metrics = recorder()?;
    crate::metrics::describe();
    let (engine, backups) = stores::engine(&settings).await?;
    let access_log = AccessLog::open(&settings.access_log)?;
    let contents = FileContents::read(flags, &settings);
    let service = Gateway::new(engine.clone(), &settings)?;
    let front = Front::new(service.clone(), access_log.clone(), Traces::new(settings.trace.make));
    let (listener, tls) = listener(&settings)?;
    let (stop, stop_admin) = (CancellationToken::new(), CancellationToken::new());
    let stopping = CancellationToken::new();
    announce(&format!("listening on {}://{}", scheme(&settings), listener.local_addr()?));
    let mut tasks = JoinSet::new();
    let mut reloadable = Reloadable { contents, tls, tokens: None, access_log: access_log.clone() };
    if let Some(address) = settings.admin {
        let address = admin_address(address, &settings)?;
        let shown = AdminParts {
            engine: engine.clone(),
            metrics: metrics.clone(),
            upstreams: service.upstreams(),
            stopping: stopping.clone(),
            backups,
        };
        let admin = Admin::bind(&address, shown)?;
        reloadable.tokens = Some(admin.tokens());
        announce(&format!("admin on http://{}", admin.address()?));
        let stop = stop_admin.clone();
        tasks.spawn(async move {
            admin.serve(stop).await;
            Ok(())
        });
    }
    let reloader = Reloader::new(flags.clone(), settings.clone(), service.clone(), reloadable)?;
    tasks.spawn(reloader.run(stop.clone()));
    let background = Background::start(&engine, metrics);
    let listening = tokio::spawn(listener.serve(
        move || front.clone(),
        stop.clone().cancelled_owned(),
        settings.grace,
    ));
    introduce(&engine, &settings);
    tokio::select! {
        name = signals.wait() => {
            info!(signal = name, "stopping");
            stopping.cancel();
            delay(settings.drain_delay, &mut signals).await;
        }
        Some(ended) = tasks.join_next() => warn!(?ended, "a part of the gateway ended: stopping"),
    }
    stopping.cancel();
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
    Ok(())
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
async fn delay(time: Duration, signals: &mut StopSignals) {
    if time.is_zero() {
        return;
    }
    info!(?time, "requests are still taken");
    if let Ok(name) = tokio::time::timeout(time, signals.wait()).await {
        info!(signal = name, "stopping now");
    }
}

/// Where operators connect, with the tokens read.
fn admin_address(address: SocketAddr, settings: &Settings) -> anyhow::Result<AdminAddress> {
    let read = |token: &Option<config::AdminToken>| {
        token.as_ref().map(config::AdminToken::read).transpose()
    };
    Ok(AdminAddress {
        address,
        token: read(&settings.admin_token).context("cannot read the admin token")?,
        callback_token: read(&settings.callback_token)
            .context("cannot read the token for callbacks")?,
        limits: limits(settings),
    })
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

fn limits(settings: &Settings) -> ListenerSettings {
    ListenerSettings {
        max_connections: settings.limits.connections,
        header_timeout: settings.timeouts.header,
        body_timeout: settings.timeouts.body,
        idle_timeout: settings.timeouts.idle,
        max_head_bytes: settings.limits.header_bytes,
        handshake_timeout: ListenerSettings::HANDSHAKE_TIMEOUT,
    }
}

fn listener(settings: &Settings) -> anyhow::Result<(Listener, Option<ServerTls>)> {
    let listener = Listener::bind(settings.listen, limits(settings))
        .with_context(|| format!("cannot listen on {}", settings.listen))?
        .with_proxies(proxies(&settings.proxies));
    let Some(tls) = &settings.tls else { return Ok((listener, None)) };
    let tls = ServerTls::from_files(&tls_files(tls))?;
    Ok((listener.with_tls(tls.clone()), Some(tls)))
}

/// The trusted proxies in front.
fn proxies(settings: &Proxies) -> TrustedProxies {
    let header = match settings.header {
        ProxyHeader::XForwarded => ForwardedHeader::XForwarded,
        ProxyHeader::Forwarded => ForwardedHeader::Forwarded,
    };
    let (ranges, proxy_protocol) = (settings.trusted.clone(), settings.proxy_protocol);
    TrustedProxies { ranges, header, proxy_protocol }
}

/// The name of the machine, or of the container.
fn host() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}

const fn scheme(settings: &Settings) -> &'static str {
    if settings.tls.is_some() { "https" } else { "http" }
}

/// Prints a line for the process that started this one.
fn announce(line: &str) {
    let mut out = std::io::stdout().lock();
    // The output may be closed.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The signals that end the gateway.
struct StopSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl StopSignals {
    fn watch() -> anyhow::Result<Self> {
        let watch = |kind| signal(kind).context("cannot watch for signals");
        Ok(Self {
            terminate: watch(SignalKind::terminate())?,
            interrupt: watch(SignalKind::interrupt())?,
        })
    }

    async fn wait(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
