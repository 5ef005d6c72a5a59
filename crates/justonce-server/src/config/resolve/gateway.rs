//! The settings of the gateway as a whole.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use justonce::MAX_BODY_BYTES;

use super::layer::Layer;
use super::route::Base;
use super::{address, routes, store};
use crate::config::complaint::{Complaint, Read};
use crate::config::convert::{
    boolean, choice, duration, full_text, number, one_or_more, path, ratio, size, some_time, time,
};
use crate::config::report::Report;
use crate::config::schema::DEFAULTS;
use crate::config::section::Section;
use crate::config::settings::{
    AdminToken, Breaker, CompleterLimits, Limits, Log, LogFormat, LogLevel, Secret, Settings,
    Timeouts, Tls,
};
use crate::config::store::StoreUrl;
use crate::config::tree::{Node, Origin, Table};

/// The longest request body that may be allowed, in bytes: it is held in memory.
pub(super) const MAX_REQUEST_BYTES: usize = 1 << 30;
const DEFAULT_REQUEST_BYTES: usize = 1024 * 1024;
const DEFAULT_PORT: u16 = 8080;
const DEFAULT_ADMIN_PORT: u16 = 8081;
const DEFAULT_STORE: &str = "./justonce-data";
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// Reads everything before anything is given up, so that all mistakes are reported together.
/// Nothing comes back if something needed is missing.
pub(crate) fn settings(tree: &Table, report: &mut Report) -> Option<Settings> {
    let top = Section::new(tree);
    let listen = top.get_or("listen", loopback(DEFAULT_PORT), report, address::listen);
    let admin = top.get_or("admin", Some(loopback(DEFAULT_ADMIN_PORT)), report, address::admin);
    let admin_token = token(&top, "admin_token", report);
    let callback_token = token(&top, "callback_token", report);
    check_callbacks(&top, admin, report);
    check_admin(&top, listen, admin, admin_token.is_some(), report);
    let upstreams = upstreams(&top, report);
    let store = StoreUrl::File(PathBuf::from(DEFAULT_STORE));
    let store = top.get_or("store", store, report, store::url);
    let stores = store::settings(&top, report);
    let tls = tls(&top, report);
    let upstream_ca = top.inside("upstream_tls").get("ca", report, path);
    let grace = top.get_or("grace", DEFAULT_GRACE, report, duration);
    let log = log(&top.inside("log"), report);
    let limits = limits(&top.inside("limits"), report);
    let breaker = breaker(&top.inside("breaker"), report);
    let completer = completer(&top.inside("completer"), report);
    let problems_base = top.get("problems_base", report, address::problems_base);
    let base = base(&top, report);
    let timeouts = timeouts(&top.inside("timeouts"), base.response_timeout.value, report);
    let defaults = Layer::read(&top.inside(DEFAULTS), report);
    let default_route = routes::default_route(&defaults, &base, report);
    let routes = routes::routes(&top, &defaults, &base, report);
    Some(Settings {
        listen,
        admin,
        admin_token,
        callback_token,
        upstreams: upstreams?,
        store,
        stores,
        tls,
        upstream_ca: upstream_ca.map(|set| set.value),
        grace,
        log,
        limits,
        timeouts,
        breaker,
        completer,
        problems_base: problems_base.map(|set| set.value),
        default_route: default_route?,
        routes: routes?,
        ignored_variables: Vec::new(),
    })
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn upstreams(top: &Section<'_>, report: &mut Report) -> Option<Vec<String>> {
    let set = top.get("upstream", report, one_or_more(address::upstream));
    let missing = match &set {
        None => top.node("upstream").is_none(),
        Some(set) => set.value.is_empty(),
    };
    if missing {
        let help = "as in `upstream = \"http://127.0.0.1:9000\"` or `--upstream URL`".to_owned();
        let message = "there is no upstream: say where the API is".to_owned();
        report.at(&top.origin("upstream"), message, Some(help));
        return None;
    }
    let set = set?;
    if let Some(twice) = first_twice(&set.value) {
        report.at(&set.origin, format!("upstream {twice} is listed twice"), None);
    }
    Some(set.value)
}

fn first_twice(list: &[String]) -> Option<&String> {
    list.iter().enumerate().find(|(at, one)| list.iter().take(*at).any(|o| o == *one)).map(|f| f.1)
}

/// A token that stands in the configuration, or in a file that it names.
fn token(top: &Section<'_>, name: &str, report: &mut Report) -> Option<AdminToken> {
    let text = top.get(name, report, secret);
    let file = top.get(&format!("{name}_file"), report, path);
    if let (Some(text), Some(file)) = (&text, &file) {
        let other = report.name_of(&text.origin);
        let message = format!("`{name}_file`: there is an `{name}` too ({other})");
        report.at(&file.origin, message, Some("keep one of them".into()));
    }
    let text = text.map(|set| AdminToken::Text(set.value));
    text.or_else(|| file.map(|set| AdminToken::File(set.value)))
}

fn secret(node: &Node) -> Read<Secret> {
    let text = full_text(node)?;
    if text.chars().all(|c| c.is_ascii_graphic()) {
        Ok(Secret::new(text))
    } else {
        Err(Complaint::about(node, "a token is made of visible ASCII characters without spaces"))
    }
}

/// The downstream calls back on the admin address, so there must be one.
fn check_callbacks(top: &Section<'_>, admin: Option<SocketAddr>, report: &mut Report) {
    for name in ["callback_token", "callback_token_file"] {
        if admin.is_none() && top.node(name).is_some() {
            let message = format!("`{name}`: callbacks come to the admin address, which is off");
            report.at(&top.origin(name), message, None);
        }
    }
}

fn check_admin(
    top: &Section<'_>,
    listen: SocketAddr,
    admin: Option<SocketAddr>,
    has_token: bool,
    report: &mut Report,
) {
    let Some(admin) = admin else { return };
    let said = if top.node("admin").is_some() { "admin" } else { "listen" };
    if admin == listen && admin.port() != 0 {
        let message = format!("`listen` and `admin` are the same address, {admin}");
        report.at(&top.origin(said), message, None);
    }
    if !admin.ip().is_loopback() && !has_token {
        let message = format!("`admin`: {} is not loopback, and there is no token", admin.ip());
        let help = "set `admin_token` or `admin_token_file`, or listen on 127.0.0.1".to_owned();
        report.at(&top.origin("admin"), message, Some(help));
    }
}

fn tls(top: &Section<'_>, report: &mut Report) -> Option<Tls> {
    let tls = top.inside("tls");
    let cert = tls.get("cert", report, path);
    let key = tls.get("key", report, path);
    let mut lonely = |origin: &Origin, missing: &str| {
        let message = format!("`tls` has no `{missing}`: a certificate and its key go together");
        report.at(origin, message, None);
    };
    match (cert, key) {
        (Some(cert), Some(key)) => return Some(Tls { cert: cert.value, key: key.value }),
        (Some(cert), None) if tls.node("key").is_none() => lonely(&cert.origin, "key"),
        (None, Some(key)) if tls.node("cert").is_none() => lonely(&key.origin, "cert"),
        (None, None) if top.node("tls").is_some() && tls.members().next().is_none() => {
            lonely(&top.origin("tls"), "cert");
        }
        _ => {}
    }
    None
}

const LEVELS: &[(&str, LogLevel)] = &[
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];
const FORMATS: &[(&str, LogFormat)] = &[("text", LogFormat::Text), ("json", LogFormat::Json)];

fn log(log: &Section<'_>, report: &mut Report) -> Log {
    Log {
        level: log.get_or("level", LogLevel::Info, report, choice(LEVELS)),
        format: log.get_or("format", LogFormat::Text, report, choice(FORMATS)),
    }
}

fn limits(limits: &Section<'_>, report: &mut Report) -> Limits {
    const MANY: usize = 1_000_000;
    Limits {
        connections: limits.get_or("connections", 16_384, report, number(1..=MANY)),
        header_bytes: limits.get_or("header_bytes", 64 * 1024, report, size(8192..=1 << 20)),
        concurrent: limits.get_or("concurrent", 1_000, report, number(1..=MANY)),
        waiters: limits.get_or("waiters", 10_000, report, number(0..=MANY)),
    }
}

/// What routes have unless they or `[defaults]` say otherwise.
fn base(top: &Section<'_>, report: &mut Report) -> Base {
    let (limits, timeouts) = (top.inside("limits"), top.inside("timeouts"));
    Base {
        request_body: limits.get_or(
            "request_body",
            DEFAULT_REQUEST_BYTES,
            report,
            size(0..=MAX_REQUEST_BYTES),
        ),
        stored_response_body: limits.get_or(
            "stored_response_body",
            MAX_BODY_BYTES,
            report,
            size(0..=MAX_BODY_BYTES),
        ),
        response_timeout: timeouts
            .get("response", report, some_time)
            .unwrap_or_else(Base::response_timeout),
    }
}

fn timeouts(timeouts: &Section<'_>, response: Duration, report: &mut Report) -> Timeouts {
    let mut time = |name: &str, seconds: u64| {
        timeouts.get_or(name, Duration::from_secs(seconds), report, some_time)
    };
    Timeouts {
        connect: time("connect", 5),
        idle: time("idle", 90),
        upstream_idle: time("upstream_idle", 4),
        header: time("header", 10),
        body: time("body", 30),
        response,
    }
}

fn breaker(breaker: &Section<'_>, report: &mut Report) -> Option<Breaker> {
    let enabled = breaker.get_or("enabled", true, report, boolean);
    let settings = Breaker {
        window: breaker.get_or("window", Duration::from_secs(10), report, some_time),
        min_requests: breaker.get_or("min_requests", 20, report, number(1..=1_000_000)),
        failure_ratio: breaker.get_or("failure_ratio", 0.5, report, ratio),
        open_for: breaker.get_or("open_for", Duration::from_secs(5), report, some_time),
    };
    enabled.then_some(settings)
}

fn completer(completer: &Section<'_>, report: &mut Report) -> CompleterLimits {
    let all = Duration::from_millis(100)..=Duration::from_secs(3600);
    CompleterLimits {
        every: completer.get_or("every", Duration::from_secs(5), report, time(all)),
        at_once: completer.get_or("at_once", 16, report, number(1..=1000)),
    }
}
