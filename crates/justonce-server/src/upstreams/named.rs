//! The upstreams that are in force, by their names.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwap;
use justonce::Engine;
use justonce::worker::Worker;
use justonce_proxy::{Proxy, ProxySettings, UpstreamStatus};

use super::checks;
use super::settings::Common;
use crate::config::Settings;
use crate::files::{self, NamedFile};

/// The upstreams that are in force. Cheap to clone; all clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Upstreams {
    common: Common,
    now: Arc<ArcSwap<UpstreamSet>>,
}

/// Upstreams by their names.
#[derive(Debug, Default)]
pub(crate) struct UpstreamSet(BTreeMap<String, Arc<NamedUpstream>>);

/// One upstream. It ends when no route and no request uses it any more.
struct NamedUpstream {
    proxy: Proxy,
    /// The pause between two checks, if it is checked.
    interval: Option<Duration>,
    /// The contents of its TLS files when they were read.
    files: Vec<NamedFile>,
    _checks: Option<Worker>,
}

impl Upstreams {
    /// Starts the upstreams of these settings, and their checks.
    ///
    /// # Errors
    ///
    /// If a file that one of them needs cannot be used.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, if one is checked.
    pub(crate) fn new(engine: &Engine, settings: &Settings) -> anyhow::Result<Self> {
        let upstreams = Self { common: Common::new(settings), now: Arc::default() };
        let set = upstreams.renewed(engine, settings)?;
        upstreams.replace(set);
        Ok(upstreams)
    }

    /// Those in force.
    pub(crate) fn now(&self) -> Arc<UpstreamSet> {
        self.now.load_full()
    }

    /// The upstreams of new settings: those that are as before go on with their connections, their
    /// breakers and their health. One whose certificates cannot be read any more goes on, too.
    ///
    /// # Errors
    ///
    /// If a file that a new or changed one needs cannot be used.
    pub(crate) fn renewed(
        &self,
        engine: &Engine,
        settings: &Settings,
    ) -> anyhow::Result<UpstreamSet> {
        let before = self.now.load_full();
        let mut set = BTreeMap::new();
        for upstream in &settings.upstreams {
            let name = &upstream.name;
            let wanted = self.common.proxy(upstream, settings)?;
            let interval = upstream.health.as_ref().map(|health| health.interval);
            let files = files::of_upstream(upstream, settings);
            let old = before.0.get(name);
            let same =
                old.filter(|old| *old.proxy.settings() == wanted && old.interval == interval);
            let named = match same {
                Some(same) if same.files == files => Arc::clone(same),
                _ => {
                    let started = NamedUpstream::start(engine, name, wanted, interval, files);
                    renewed(started, same, name)?
                }
            };
            set.insert(name.clone(), named);
        }
        Ok(UpstreamSet(set))
    }

    /// Puts upstreams in force.
    pub(crate) fn replace(&self, set: UpstreamSet) {
        self.now.store(Arc::new(set));
    }
}

/// What becomes of an upstream that was started. `same` is the one in force, if only the contents
/// of its files have changed: if those cannot be used, it goes on.
fn renewed(
    started: anyhow::Result<NamedUpstream>,
    same: Option<&Arc<NamedUpstream>>,
    name: &str,
) -> anyhow::Result<Arc<NamedUpstream>> {
    match (started, same) {
        (Ok(new), None) => Ok(Arc::new(new)),
        (Ok(new), Some(_)) => {
            tracing::info!(upstream = name, "new certificates count");
            Ok(Arc::new(new))
        }
        (Err(error), None) => Err(error.context(format!("`upstreams.{name}`"))),
        (Err(error), Some(old)) => {
            tracing::error!(upstream = name, %error, "the old certificates are still used");
            Ok(Arc::clone(old))
        }
    }
}

impl NamedUpstream {
    fn start(
        engine: &Engine,
        name: &str,
        settings: ProxySettings,
        interval: Option<Duration>,
        files: Vec<NamedFile>,
    ) -> anyhow::Result<Self> {
        let proxy = Proxy::new(settings)?;
        let checks = interval.map(|interval| checks::start(engine, name, &proxy, interval));
        Ok(Self { proxy, interval, files, _checks: checks })
    }
}

impl UpstreamSet {
    /// The proxy to one of them.
    ///
    /// # Errors
    ///
    /// If there is none of that name; the configuration was checked, so this is a surprise.
    pub(crate) fn proxy(&self, name: &str) -> anyhow::Result<&Proxy> {
        let named = self.0.get(name);
        named.map(|named| &named.proxy).with_context(|| format!("there is no upstream {name}"))
    }

    /// The state of every address, with the name of its upstream.
    pub(crate) fn status(&self) -> Vec<(&str, UpstreamStatus)> {
        let named = self.0.iter();
        let of_each = named.flat_map(|(name, named)| {
            named.proxy.status().into_iter().map(move |status| (name.as_str(), status))
        });
        of_each.collect()
    }

    /// The names of those without a healthy address.
    pub(crate) fn unhealthy(&self) -> Vec<&str> {
        let is_out = |named: &NamedUpstream| named.proxy.status().iter().all(|one| !one.is_healthy);
        let out = self.0.iter().filter(|(_, named)| is_out(named));
        out.map(|(name, _)| name.as_str()).collect()
    }
}

impl fmt::Debug for NamedUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.proxy.fmt(f)
    }
}
