//! The complete settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use justonce_net::SocketAddress;

use super::jwt;
use super::proxies;
use super::route::RouteTable;
use super::tables::{Breaker, CompleterLimits, GatewayLayer, Limits, Log, Timeouts};
use super::tls::{self, Tls};
use super::token::AdminToken;
use super::{AccessLog, JwtSettings, Proxies, Trace};
use super::{
    EmbeddedSettings, NearCacheSettings, PostgresSettings, RedisSettings, RouteSettings,
    UpstreamSettings, routes, upstreams,
};
use super::{StoreSettings, StoreUrl};
use crate::declare::Layer;
use crate::report::Report;
use crate::section::Section;
use crate::tree::DEFAULTS;
use crate::tree::Table;

/// Everything the gateway needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where clients connect.
    pub listen: SocketAddress,
    /// The mode of the file of a Unix socket there.
    pub listen_mode: u32,
    /// Where operators connect; nothing if there is no such place.
    pub admin: Option<SocketAddr>,
    /// What operators must show.
    pub admin_token: Option<AdminToken>,
    /// What the service must show when it reports what became of an operation; nothing if it
    /// cannot.
    pub callback_token: Option<AdminToken>,
    /// Where requests go: `default` first, if there is one; then by their names.
    pub upstreams: Vec<UpstreamSettings>,
    /// Whose tokens identify callers, by their names.
    pub jwt: Vec<JwtSettings>,
    /// Where records are kept.
    pub store: StoreUrl,
    /// How stores are used.
    pub stores: StoreSettings,
    /// The certificate that clients are shown; nothing for cleartext.
    pub tls: Option<Tls>,
    /// Certificates that upstreams without a `tls.ca` are trusted by, beside those of the system.
    pub upstream_ca: Option<PathBuf>,
    /// How long the gateway goes on as before after it is told to stop.
    pub drain_delay: Duration,
    /// How long running operations may take to finish when the gateway stops.
    pub grace: Duration,
    /// How long new connections may wait for a successor that takes over the embedded store.
    pub handover_pause: Duration,
    /// The trusted proxies in front.
    pub proxies: Proxies,
    /// What is logged, and how.
    pub log: Log,
    /// The lines about requests.
    pub access_log: AccessLog,
    /// The traces of requests.
    pub trace: Trace,
    /// How much of everything.
    pub limits: Limits,
    /// How long for everything.
    pub timeouts: Timeouts,
    /// The circuit breaker of each upstream; nothing for none.
    pub breaker: Option<Breaker>,
    /// How operations are completed whose gateway died.
    pub completer: CompleterLimits,
    /// What the `type` of a problem begins with, without a slash at the end; nothing for the
    /// gateway's own pages.
    pub problems_base: Option<String>,
    /// For every POST and PATCH that no route is for.
    pub default_route: RouteSettings,
    /// In the order of the file: the first that matches counts.
    pub routes: Vec<RouteSettings>,
    /// Variables that begin like ours and are not: the service links of Kubernetes.
    pub ignored_variables: Vec<String>,
    /// The same again, by setting.
    pub(crate) declared: GatewayLayer,
}

impl Settings {
    /// All routes, the default route last.
    pub fn all_routes(&self) -> impl Iterator<Item = &RouteSettings> + Clone {
        self.routes.iter().chain([&self.default_route])
    }

    /// The settings, or tables of them, that differ and that only a restart can change; routes and
    /// `[defaults]` can be exchanged while the gateway runs.
    #[must_use]
    pub fn changed_for_restart(&self, new: &Self) -> Vec<&'static str> {
        let mut names = self.declared.restarts(&new.declared);
        // Their values are read again on every reload; whether there are any is not.
        let live = [
            ("admin_token", self.admin_token.is_some() != new.admin_token.is_some()),
            ("callback_token", self.callback_token.is_some() != new.callback_token.is_some()),
            ("tls", self.tls.is_some() != new.tls.is_some()),
        ];
        names.extend(live.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name));
        names
    }
}

/// Reads everything before anything is given up, so that all mistakes are reported together.
/// Nothing comes back if something needed is missing.
pub(crate) fn settings(tree: &Table, report: &mut Report) -> Option<Settings> {
    let root = Section::new(tree);
    let declared = GatewayLayer::complete(&root, report);
    let GatewayLayer { top, timeouts, limits, .. } = declared.clone();
    let admin_token = AdminToken::of("admin_token", top.admin_token, top.admin_token_file, report);
    let callback_token =
        AdminToken::of("callback_token", top.callback_token, top.callback_token_file, report);
    let (listen, admin) = (top.listen?.value, top.admin?.value);
    check_callbacks(&root, admin, report);
    check_admin(&root, listen.ip(), admin, admin_token.is_some(), report);
    proxies::check(&declared.proxies, listen.ip().is_none(), report);
    let upstreams = upstreams::upstreams(&root, &declared.top, report);
    let issuers = jwt::issuers(&root, report);
    let tls = tls::tls(&root, &declared.tls, report);
    let mut base = RouteTable::defaults(report);
    base.route.request_body = limits.request_body.clone();
    base.route.stored_response_body = limits.stored_response_body.clone();
    let defaults = RouteTable::read(&root.inside(DEFAULTS), report).over(&base);
    let timeout = timeouts.response.clone()?;
    let default_route = routes::default_route(&defaults, &timeout, (&upstreams, &issuers), report);
    let routes = routes::routes(&root, &defaults, &timeout, (&upstreams, &issuers), report);
    Some(Settings {
        listen,
        listen_mode: top.listen_mode?.value,
        admin,
        admin_token,
        callback_token,
        upstreams: upstreams.all,
        jwt: issuers.all,
        store: top.store?.value,
        stores: StoreSettings {
            timeout: timeouts.store.clone()?.value,
            embedded: EmbeddedSettings::of(declared.embedded.clone())?,
            redis: RedisSettings::of(declared.redis.clone())?,
            postgres: PostgresSettings::of(declared.postgres.clone())?,
            near_cache: NearCacheSettings::of(declared.near_cache.clone())
                .filter(|cache| cache.enabled),
        },
        tls,
        upstream_ca: declared.upstream_tls.ca.clone()?.value,
        drain_delay: top.drain_delay?.value,
        grace: top.grace?.value,
        handover_pause: top.handover_pause?.value,
        proxies: Proxies::of(declared.proxies.clone())?,
        log: Log::of(declared.log.clone())?,
        access_log: AccessLog::of(declared.access_log.clone())?,
        trace: Trace::of(declared.trace.clone())?,
        limits: Limits::of(limits)?,
        timeouts: Timeouts::of(timeouts)?,
        breaker: Breaker::of(declared.breaker.clone()).filter(|breaker| breaker.enabled),
        completer: CompleterLimits::of(declared.completer.clone())?,
        problems_base: top.problems_base?.value,
        default_route: default_route?,
        routes: routes?,
        ignored_variables: Vec::new(),
        declared,
    })
}

/// Callbacks come to the admin address, so there must be one.
fn check_callbacks(root: &Section<'_>, admin: Option<SocketAddr>, report: &mut Report) {
    for name in ["callback_token", "callback_token_file"] {
        if admin.is_none() && root.node(name).is_some() {
            let message = format!("`{name}`: callbacks come to the admin address, which is off");
            report.at(&root.origin(name), message, None);
        }
    }
}

fn check_admin(
    root: &Section<'_>,
    listen: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    has_token: bool,
    report: &mut Report,
) {
    let Some(admin) = admin else { return };
    let set = if root.node("admin").is_some() { "admin" } else { "listen" };
    if Some(admin) == listen && admin.port() != 0 {
        let message = format!("`listen` and `admin` are the same address, {admin}");
        report.at(&root.origin(set), message, None);
    }
    if !admin.ip().is_loopback() && !has_token {
        let message = format!("`admin`: {} is not loopback, and there is no token", admin.ip());
        let help = "set `admin_token` or `admin_token_file`, or listen on 127.0.0.1".to_owned();
        report.at(&root.origin("admin"), message, Some(help));
    }
}
