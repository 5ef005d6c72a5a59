//! The probers of all routes, exchanged with the routes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use justonce::engine::{Prober, ProberSettings};
use justonce::http::{Rule, UnknownListener};
use justonce::{BackOff, Engine, RecordId, Scope};
use justonce_proxy::Proxy;

use super::ask::RouteProbe;
use crate::config::{ProbeSettings, RouteSettings, Settings};
use crate::metrics::describe_probe;
use crate::rules;
use crate::upstreams::UpstreamSet;

/// The probers of all routes that have one, by the names of the routes.
#[derive(Default)]
pub(crate) struct Probers(ArcSwap<HashMap<String, Prober>>);

impl Probers {
    /// Starts the probers of these routes, and stops those before. A question that is under way is
    /// asked again; nothing is lost by that.
    pub(crate) fn exchange(
        &self,
        engine: &Engine,
        upstreams: &UpstreamSet,
        settings: &Settings,
    ) -> anyhow::Result<()> {
        let mut probers = HashMap::new();
        for route in settings.all_routes() {
            if let (Some(probe), Some(_)) = (&route.probe, &route.key) {
                describe_probe(&route.name);
                // Where its requests go: another upstream would know nothing of them.
                let proxy = upstreams.proxy(&route.upstream)?;
                let prober = start(engine, proxy, route, probe, rules::rule(route, settings)?)?;
                probers.insert(route.name.clone(), prober);
            }
        }
        self.0.store(Arc::new(probers));
        Ok(())
    }
}

impl UnknownListener for Probers {
    fn on_unknown(&self, route: &str, id: RecordId) {
        if let Some(prober) = self.0.load().get(route) {
            prober.prioritize(id);
        }
    }
}

impl fmt::Debug for Probers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.load().keys()).finish()
    }
}

fn start(
    engine: &Engine,
    proxy: &Proxy,
    route: &RouteSettings,
    probe: &ProbeSettings,
    rule: Rule,
) -> anyhow::Result<Prober> {
    let settings = ProberSettings {
        // A route's keys live in the scope of its name only.
        scope: Some(Scope::builder().route(&route.name).build()?),
        after: probe.after,
        release_after: probe.release_after,
        every: probe.pause,
        back_off: BackOff { first: probe.pause, max: probe.pause_max },
        timeout: probe.timeout,
        at_once: probe.at_once,
        ..ProberSettings::new(&route.name)
    };
    let probe = RouteProbe {
        route: route.name.clone(),
        settings: probe.clone(),
        rule,
        max_response_bytes: route.stored_response_body,
        proxy: proxy.clone(),
    };
    Ok(engine.start_prober(settings, probe))
}
