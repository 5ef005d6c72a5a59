//! `justonce serve`: puts everything together and runs it until told to stop.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;
use justonce::Engine;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::admin::{Admin, AdminAddress};
use crate::config::{self, Flags, Settings};
use crate::gateway::Gateway;
use crate::listen::{ListenLimits, Listener, ServerTls};
use crate::proxy::{BreakerSettings, Proxy, ProxySettings, UpstreamAddress};
use crate::reload::{Live, Reloader, Seen};
use crate::{logs, stores, upkeep};

/// The bounds of the buckets of all durations, in seconds.
const BUCKETS_S: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// Runs the gateway until SIGTERM or SIGINT.
///
/// # Errors
///
/// If the configuration is wrong, or something that is needed cannot be had.
pub fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let settings = config::load(flags, &config::variables_of_the_process())?;
    logs::start(settings.log);
    if !settings.ignored_variables.is_empty() {
        let names = settings.ignored_variables.join(", ");
        info!(variables = names, "these are service links of Kubernetes and no settings: ignored");
    }
    say_what_is_risky(&settings);
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(flags, settings))?;
    // What is still running has had its time.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// What `justonce check` would say, for those who never ran it.
pub(crate) fn say_what_is_risky(settings: &Settings) {
    for warning in config::never_reached(settings).iter().chain(&config::warnings(settings)) {
        warn!(target: "justonce::config", "{warning}");
    }
    for note in config::notes(settings) {
        info!(target: "justonce::config", "{note}");
    }
}

/// Every connection is an open file. Many systems allow a process 1024 unless it asks for more.
fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        warn!(%error, "the number of open files cannot be raised");
    }
}

async fn serve(flags: &Flags, settings: Settings) -> anyhow::Result<()> {
    let mut ends = Ends::watch()?;
    let metrics = recorder()?;
    crate::metrics::describe();
    let engine = stores::engine(&settings).await?;
    let service = Gateway::new(engine.clone(), proxy(&settings)?, &settings)?;
    let seen = Seen::now(flags, &settings);
    let (listener, tls) = listener(&settings)?;
    let (stop, stop_admin) = (CancellationToken::new(), CancellationToken::new());
    say(&format!("listening on {}://{}", scheme(&settings), listener.local_addr()?));
    let mut tasks = JoinSet::new();
    let mut live = Live { seen, tls, tokens: None };
    if let Some(address) = settings.admin {
        let address = admin_address(address, &settings)?;
        let admin = Admin::bind(&address, engine.clone(), metrics.clone(), stop.clone())?;
        live.tokens = Some(admin.tokens());
        say(&format!("admin on http://{}", admin.address()?));
        let stop = stop_admin.clone();
        tasks.spawn(async move {
            admin.serve(stop).await;
            Ok(())
        });
    }
    let reloader = Reloader::new(flags.clone(), settings.clone(), service.clone(), live)?;
    tasks.spawn(reloader.run(stop.clone()));
    tokio::spawn(upkeep::sweep(engine.clone(), stop.clone()));
    tokio::spawn(upkeep::tidy_metrics(metrics, stop.clone()));
    let gateway = service.clone();
    let listening = tokio::spawn(listener.serve(
        move || service.clone(),
        stop.clone().cancelled_owned(),
        settings.grace,
    ));
    info!(
        owner = engine.owner().as_str(),
        host = host(),
        pid = std::process::id(),
        "an engine starts"
    );
    info!(upstreams = ?settings.upstreams, store = %settings.store, "the gateway runs");
    tokio::select! {
        name = ends.wait() => info!(signal = name, "stopping"),
        Some(ended) = tasks.join_next() => warn!(?ended, "a part of the gateway ended: stopping"),
    }
    let deadline = Instant::now() + settings.grace;
    stop.cancel();
    gateway.stop_completing();
    let served = listening.await.context("the listener failed")?;
    drain(&engine, deadline).await;
    stop_admin.cancel();
    info!(?served, "stopped");
    Ok(())
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

/// Operations whose callers have left finish too, or are handed over: what is not finished in time
/// becomes unknown, or the next attempt takes over, as its route says.
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

fn proxy(settings: &Settings) -> anyhow::Result<Proxy> {
    let upstreams = settings.upstreams.iter().map(|url| UpstreamAddress::parse(url));
    let mut proxy = ProxySettings::to(upstreams.collect::<Result<Vec<_>, _>>()?);
    proxy.connect_timeout = settings.timeouts.connect;
    proxy.response_timeout = settings.timeouts.response;
    proxy.read_timeout = proxy.read_timeout.max(settings.timeouts.response);
    proxy.idle_timeout = settings.timeouts.upstream_idle;
    proxy.ca_file = settings.upstream_ca.clone();
    proxy.breaker = match &settings.breaker {
        None => BreakerSettings { enabled: false, ..BreakerSettings::default() },
        Some(breaker) => BreakerSettings {
            enabled: true,
            window: breaker.window,
            min_requests: u32::try_from(breaker.min_requests).unwrap_or(u32::MAX),
            failure_percent: percent(breaker.failure_ratio),
            open_for: breaker.open_for,
            ..BreakerSettings::default()
        },
    };
    Ok(Proxy::new(proxy)?)
}

fn limits(settings: &Settings) -> ListenLimits {
    ListenLimits {
        max_connections: settings.limits.connections,
        header_timeout: settings.timeouts.header,
        body_timeout: settings.timeouts.body,
        keep_alive: settings.timeouts.idle,
        max_head_bytes: settings.limits.header_bytes,
        ..ListenLimits::default()
    }
}

fn listener(settings: &Settings) -> anyhow::Result<(Listener, Option<ServerTls>)> {
    let listener = Listener::bind(settings.listen, limits(settings))
        .with_context(|| format!("cannot listen on {}", settings.listen))?;
    let Some(tls) = &settings.tls else { return Ok((listener, None)) };
    let tls = ServerTls::from_files(&tls.cert, &tls.key)?;
    Ok((listener.with_tls(tls.clone()), Some(tls)))
}

/// A share as whole percents. The configuration has checked that it lies between 0 and 1.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
fn percent(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * 100.0).round() as u32
}

/// The name of the machine, or of the container.
fn host() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}

const fn scheme(settings: &Settings) -> &'static str {
    if settings.tls.is_some() { "https" } else { "http" }
}

/// Tells whoever started us, also through a pipe.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody has to read it.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The signals that end the gateway.
struct Ends {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Ends {
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
