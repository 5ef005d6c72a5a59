//! The settings of upstreams, as the proxy has them.

use justonce_proxy::{
    Balance, BreakerSettings, ClientCertificate, HealthCheck, HostHeader, Protocol, Proxy,
    ProxySettings, ProxyTimeouts, UpstreamAddress, UpstreamRoots, UpstreamTls,
};

use crate::config::{self, HealthSettings, Settings, StatusSet, UpstreamHost, UpstreamSettings};

/// What holds for all upstreams: it changes only with a restart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    timeouts: ProxyTimeouts,
    breaker: Option<BreakerSettings>,
}

impl Common {
    pub(super) fn new(settings: &Settings) -> Self {
        let timeouts = ProxyTimeouts {
            connect: settings.timeouts.connect,
            response: settings.timeouts.response,
            idle: settings.timeouts.upstream_idle,
        };
        let breaker = settings.breaker.map(|breaker| BreakerSettings {
            window: breaker.window,
            min_requests: u32::try_from(breaker.min_requests).unwrap_or(u32::MAX),
            failure_percent: percent(breaker.failure_ratio),
            open_for: breaker.open_for,
        });
        Self { timeouts, breaker }
    }

    /// The settings of the proxy to one upstream.
    ///
    /// # Errors
    ///
    /// If an address is none; the configuration was checked, so this is a surprise.
    pub(super) fn proxy(
        &self,
        upstream: &UpstreamSettings,
        settings: &Settings,
    ) -> anyhow::Result<ProxySettings> {
        let addresses: Result<Vec<_>, _> =
            upstream.urls.iter().map(|url| UpstreamAddress::parse(url)).collect();
        let mut proxy = ProxySettings::new(addresses?, self.timeouts);
        proxy.breaker = self.breaker;
        proxy.balance = match upstream.balance {
            config::Balance::LeastLoaded => Balance::LeastLoaded,
            config::Balance::RoundRobin => Balance::RoundRobin,
        };
        proxy.protocol = match upstream.protocol {
            config::Protocol::Http1 => Protocol::Http1,
            config::Protocol::Http2 => Protocol::Http2,
        };
        proxy.host = match &upstream.host {
            UpstreamHost::Client => HostHeader::Client,
            UpstreamHost::Upstream => HostHeader::Upstream,
            UpstreamHost::Name(name) => HostHeader::Name(name.clone()),
        };
        proxy.tls = tls(upstream, settings);
        proxy.health = upstream.health.as_ref().map(health);
        Ok(proxy)
    }
}

fn tls(upstream: &UpstreamSettings, settings: &Settings) -> UpstreamTls {
    let roots = match (&upstream.tls.ca, &settings.upstream_ca) {
        (Some(own), _) => UpstreamRoots::Only(own.clone()),
        (None, Some(more)) => UpstreamRoots::SystemAnd(more.clone()),
        (None, None) => UpstreamRoots::System,
    };
    let identity = upstream.tls.identity.clone();
    let certificate = identity.map(|(chain, key)| ClientCertificate { chain, key });
    UpstreamTls { roots, certificate, server_name: upstream.tls.name.clone() }
}

fn health(settings: &HealthSettings) -> HealthCheck {
    let expected = |set: &StatusSet| match set {
        StatusSet::Class(class) => class * 100..=class * 100 + 99,
        StatusSet::Code(code) => *code..=*code,
    };
    HealthCheck {
        path: settings.path.clone(),
        timeout: settings.timeout,
        unhealthy_after: settings.unhealthy_after,
        healthy_after: settings.healthy_after,
        expected: settings.status.iter().map(expected).collect(),
    }
}

/// A ratio in percent. The configuration has checked that it lies between 0 and 1.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
fn percent(ratio: f64) -> u32 {
    (ratio.clamp(0.0, 1.0) * 100.0).round() as u32
}

/// The upstreams that could not be used, each with the reason.
pub(crate) fn problems(settings: &Settings) -> Vec<String> {
    let common = Common::new(settings);
    let problem = |upstream: &UpstreamSettings| {
        let proxy = common.proxy(upstream, settings).and_then(|proxy| Ok(Proxy::new(proxy)?));
        let why = proxy.err()?;
        Some(format!("`upstreams.{}`: {why:#}", upstream.name))
    };
    settings.upstreams.iter().filter_map(problem).collect()
}
