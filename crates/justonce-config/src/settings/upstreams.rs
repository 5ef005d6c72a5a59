//! `[upstreams.NAME]`: where requests go, and how.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use http::uri::{Authority, PathAndQuery};

use super::address;
use super::status::StatusSet;
use super::tables::TopLayer;
use crate::declare::{Layer, settings, tables};
use crate::invalid::{Invalid, Read};
use crate::kind::{
    choice, custom, full_text, number, one_or_more, optional, path, repeated, text, time,
};
use crate::nearest::did_you_mean;
use crate::report::Report;
use crate::section::{Section, Sourced};
use crate::tree::{Node, Origin, UPSTREAMS, Value};

/// The name of the upstream of routes that name none.
pub(super) const DEFAULT_UPSTREAM: &str = "default";
/// More upstreams than this are a generated file gone wrong.
const MAX_UPSTREAMS: usize = 1000;
/// Names are labels of metrics.
const MAX_NAME_CHARS: usize = 64;
const LEAST_INTERVAL: Duration = Duration::from_millis(50);
const HOUR: Duration = Duration::from_secs(3600);
/// More results in a row than this would take hours.
const MAX_IN_A_ROW: u32 = 1000;

tables! {
    /// What one source says about an upstream.
    UpstreamTable {
        /// Where it is and how it is used.
        group base: UpstreamLayer;
        /// TLS to it.
        table tls: UpstreamOwnTlsLayer;
        /// How its addresses are checked.
        table health: HealthLayer;
    }
}

settings! {
    /// Where an upstream is and how it is used.
    layer UpstreamLayer {
        /// Its addresses, which share the load: one, or a list; no path, or a Unix socket
        /// (`unix:/run/shop.sock`). `upstream` above the first table is the same for
        /// `[upstreams.default]`.
        urls: Vec<String> = one_or_more(address::upstream),
            example "http://10.0.0.7:9000, http://10.0.0.8:9000", live;
        /// Which of its addresses gets a request: `least-loaded` is the one with the fewest
        /// requests under way, in turn among equals; `round-robin` is one after the other.
        balance: Balance =
            choice(&[("least-loaded", Balance::LeastLoaded), ("round-robin", Balance::RoundRobin)]),
            default "least-loaded", example "round-robin", live;
        /// What is spoken with it: `http1`, or `http2` with `https://` and in clear
        /// ([more](http.md#http2-to-the-service)).
        protocol: Protocol = choice(&[("http1", Protocol::Http1), ("http2", Protocol::Http2)]),
            default "http1", example "http2", live;
        /// The `Host` of requests: the `client`'s, the `upstream`'s own as in its address, or a
        /// name ([more](http.md#what-the-service-receives)).
        host: UpstreamHost = custom(host), default "client", example "payments.internal", live;
    }
}

settings! {
    /// TLS to an upstream.
    layer UpstreamOwnTlsLayer {
        /// Certificates (PEM) that its `https://` addresses are trusted by, and no others; without
        /// it, the system's and those of `upstream_tls.ca`.
        ca: Option<PathBuf> = optional(custom(path)), example "/etc/justonce/payments-ca.pem", live;
        /// The certificate that the gateway shows to it, with its chain, a PEM file; without it,
        /// none.
        cert: Option<PathBuf> = optional(custom(path)), example "/etc/justonce/client.pem", live;
        /// Its private key, a PEM file.
        key: Option<PathBuf> = optional(custom(path)), example "/etc/justonce/client-key.pem", live;
        /// The name that is sent (SNI) and that its certificate must carry; without it, the host of
        /// the address.
        name: Option<String> = optional(custom(full_text)), example "payments.internal", live;
    }
}

settings! {
    /// How the addresses of an upstream are checked.
    pub struct HealthSettings from HealthLayer {
        /// What is asked for with GET, to see whether an address is healthy; without it, none is
        /// checked ([more](operating.md#health-checks)).
        path: PathAndQuery = custom(health_path), example "/healthz", live;
        /// The pause between two checks of an address; each is drawn between half of it and all
        /// of it.
        interval: Duration = time(LEAST_INTERVAL..=HOUR), default "5s", example "1s", live;
        /// How long an address may take to answer.
        timeout: Duration = time(LEAST_INTERVAL..=HOUR), default "2s", example "500ms", live;
        /// After how many failures in a row it is unhealthy.
        unhealthy_after: u32 = number(1..=MAX_IN_A_ROW), default "3", example "1", live;
        /// After how many successes in a row it is healthy again.
        healthy_after: u32 = number(1..=MAX_IN_A_ROW), default "2", example "5", live;
        /// The statuses and classes of a success.
        status: Vec<StatusSet> = one_or_more(status), default "2xx", example "200, 204", live;
    }
}

/// Which address of an upstream gets a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// The one with the fewest requests under way.
    LeastLoaded,
    /// One after the other.
    RoundRobin,
}

/// What is spoken with an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// The `Host` of requests to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamHost {
    /// The client's.
    Client,
    /// The one in the address.
    Upstream,
    /// This one.
    Name(HeaderValue),
}

/// Where requests go.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamSettings {
    /// Its name, as routes have it; `default` for those that name none.
    pub name: String,
    /// Its addresses, `http://host:port` or `https://host:port`; at least one.
    pub urls: Vec<String>,
    /// Which of them gets a request.
    pub balance: Balance,
    /// What is spoken with them.
    pub protocol: Protocol,
    /// The `Host` of requests.
    pub host: UpstreamHost,
    /// TLS to those with `https`.
    pub tls: UpstreamTls,
    /// How they are checked; nothing if they are not.
    pub health: Option<HealthSettings>,
}

/// TLS to an upstream. All are PEM files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The only certificates that it is trusted by; nothing for those of the system.
    pub ca: Option<PathBuf>,
    /// The certificate that the gateway shows, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that its certificate must carry, if it is not the host of the address.
    pub name: Option<String>,
}

/// What is known of all upstreams while the rest is read.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    /// Those that are right, by their names.
    pub(super) all: Vec<UpstreamSettings>,
    /// The names of all, so that what is wrong with one is told once.
    names: Vec<String>,
    /// Where the default one would be.
    missing: Origin,
}

/// Reads all upstreams. What is wrong is reported.
pub(super) fn upstreams(root: &Section<'_>, top: &TopLayer, report: &mut Report) -> Upstreams {
    let named = root.inside(UPSTREAMS);
    let mut found = Upstreams { missing: root.origin("upstream"), ..Upstreams::default() };
    let is_named = named.node(DEFAULT_UPSTREAM).is_some();
    if is_named || root.node("upstream").is_some() {
        found.add(DEFAULT_UPSTREAM, root, top.upstream.as_ref(), report);
    }
    let others = named.members().filter(|(name, _)| *name != DEFAULT_UPSTREAM);
    for (at, (name, member)) in others.enumerate() {
        if at >= MAX_UPSTREAMS {
            let message = format!("there are more than {MAX_UPSTREAMS} upstreams");
            report.at(&member.name_origin, message, None);
            break;
        }
        if let Err(why) = is_name(name) {
            report.at(&member.name_origin, format!("`{UPSTREAMS}.{}`: {why}", shown(name)), None);
        }
        if matches!(member.node.value, Value::Table(_)) {
            found.add(name, root, None, report);
        }
    }
    found
}

impl Upstreams {
    /// Reads one of them. `short` is what stands in place of its `urls`.
    fn add(&mut self, name: &str, root: &Section<'_>, short: Option<&Urls>, report: &mut Report) {
        self.names.push(name.to_owned());
        let section = root.inside(UPSTREAMS).inside(name);
        let table = UpstreamTable::complete(&section, report);
        let urls = urls(name, &section, root, (table.base.urls.as_ref(), short), report);
        let tls = tls(name, &table.tls, &section, urls, report);
        let read = || {
            Some(UpstreamSettings {
                name: name.to_owned(),
                urls: urls?.value.clone(),
                balance: table.base.balance.as_ref()?.value,
                protocol: table.base.protocol.as_ref()?.value,
                host: table.base.host.as_ref()?.value.clone(),
                tls: tls?,
                health: HealthSettings::of(table.health.clone()),
            })
        };
        self.all.extend(read());
    }

    /// Reports a route whose upstream does not exist.
    pub(super) fn check(&self, named: Option<&Sourced<String>>, report: &mut Report) {
        let Some(Sourced { value, origin }) = named else { return };
        if self.names.contains(value) {
            return;
        }
        if value == DEFAULT_UPSTREAM {
            let help = "as in `upstream = \"http://127.0.0.1:9000\"` or `--upstream URL`";
            let message = "there is no upstream: say where the API is".to_owned();
            report.at(&self.missing, message, Some(help.to_owned()));
            return;
        }
        let help = did_you_mean(value, self.names.iter().map(String::as_str));
        let message = format!("`upstream`: there is no `[{UPSTREAMS}.{value}]`");
        report.at(origin, message, help);
    }
}

type Urls = Sourced<Vec<String>>;

/// The addresses of an upstream, from one of two places.
fn urls<'l>(
    name: &str,
    section: &Section<'_>,
    root: &Section<'_>,
    (own, short): (Option<&'l Urls>, Option<&'l Urls>),
    report: &mut Report,
) -> Option<&'l Urls> {
    if let (Some(own), Some(short)) = (own, short) {
        let place = report.name_of(&short.origin);
        let message = format!("`{UPSTREAMS}.{name}.urls`: `upstream` ({place}) says it, too");
        report.at(&own.origin, message, Some("leave one of them out".to_owned()));
    }
    let set = own.or(short);
    let is_wrong = section.node("urls").is_some()
        || (name == DEFAULT_UPSTREAM && root.node("upstream").is_some());
    match set {
        Some(set) if !set.value.is_empty() => {
            if let Some(twice) = first_twice(&set.value) {
                report.at(&set.origin, format!("upstream {twice} is listed twice"), None);
            }
            Some(set)
        }
        None if is_wrong => None,
        _ if name == DEFAULT_UPSTREAM && section.node("urls").is_none() => {
            let help = "as in `upstream = \"http://127.0.0.1:9000\"` or `--upstream URL`";
            let message = "there is no upstream: say where the API is".to_owned();
            report.at(&root.origin("upstream"), message, Some(help.to_owned()));
            None
        }
        _ => {
            let origin =
                set.map_or_else(|| root.inside(UPSTREAMS).origin(name), |set| set.origin.clone());
            let message = format!("`{UPSTREAMS}.{name}` has no `urls`: say where it is");
            let help = "as in `urls = [\"http://10.0.0.7:9000\"]`".to_owned();
            report.at(&origin, message, Some(help));
            None
        }
    }
}

fn first_twice(list: &[String]) -> Option<&String> {
    list.iter().enumerate().find(|(at, one)| list.iter().take(*at).any(|o| o == *one)).map(|f| f.1)
}

/// TLS to an upstream. What is wrong is reported.
fn tls(
    name: &str,
    layer: &UpstreamOwnTlsLayer,
    section: &Section<'_>,
    urls: Option<&Urls>,
    report: &mut Report,
) -> Option<UpstreamTls> {
    let UpstreamOwnTlsLayer { ca, cert, key, name: server } = layer.clone();
    let (cert, key) = (cert?, key?);
    let table = section.inside("tls");
    let mut incomplete = |origin: &Origin, missing: &str| {
        let message = format!(
            "`{UPSTREAMS}.{name}.tls` has no `{missing}`: a certificate and its key go together"
        );
        report.at(origin, message, None);
    };
    let identity = match (cert.value, key.value) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (Some(_), None) if table.node("key").is_none() => {
            incomplete(&cert.origin, "key");
            None
        }
        (None, Some(_)) if table.node("cert").is_none() => {
            incomplete(&key.origin, "cert");
            None
        }
        _ => None,
    };
    let is_plain = |urls: &Urls| urls.value.iter().all(|url| !url.starts_with("https:"));
    if let Some((_, first)) = table.members().next()
        && urls.is_some_and(is_plain)
    {
        let message = format!("`{UPSTREAMS}.{name}.tls`: none of its addresses is `https://…`");
        report.at(&first.name_origin, message, None);
    }
    Some(UpstreamTls { ca: ca?.value, identity, name: server?.value })
}

/// The name of an upstream, in a route.
pub(super) fn name(node: &Node) -> Read<String> {
    let text = full_text(node)?;
    match is_name(&text) {
        Ok(()) => Ok(text),
        Err(why) => {
            let message = format!("{why}, found {}", repeated(&text));
            let is_url = text.contains("://");
            let help = format!("write `[{UPSTREAMS}.NAME]` with this address, and its name here");
            Err(Invalid::at(node, message).help(is_url.then_some(help)))
        }
    }
}

/// Whether a text can be a name of the user's choice.
pub(super) fn is_name(name: &str) -> Result<(), &'static str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    match !name.is_empty() && name.len() <= MAX_NAME_CHARS && name.bytes().all(fits) {
        true => Ok(()),
        false => Err("expected a name of up to 64 letters, digits, `-` and `_`"),
    }
}

/// A wrong name, short and harmless.
pub(super) fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect()
}

/// `client`, `upstream` or a host with perhaps a port.
fn host(node: &Node) -> Read<UpstreamHost> {
    let text = text(node)?.trim();
    let wrong = || {
        let what = "\"client\", \"upstream\" or a name, as in \"payments.internal\"";
        Invalid::at(node, format!("expected {what}, found {}", repeated(text)))
    };
    match text {
        "client" => Ok(UpstreamHost::Client),
        "upstream" => Ok(UpstreamHost::Upstream),
        name => {
            let authority: Authority = name.parse().map_err(|_| wrong())?;
            if authority.host().is_empty() || name.contains('@') || name.ends_with(':') {
                return Err(wrong());
            }
            HeaderValue::from_str(name).map(UpstreamHost::Name).map_err(|_| wrong())
        }
    }
}

fn health_path(node: &Node) -> Read<PathAndQuery> {
    let text = text(node)?.trim();
    let parsed = text.parse().ok().filter(|_| text.starts_with('/') && !text.contains('#'));
    parsed.ok_or_else(|| {
        let message = format!("expected a path, as in \"/healthz\", found {}", repeated(text));
        Invalid::at(node, message)
    })
}

fn status(node: &Node) -> Read<StatusSet> {
    let text = text(node)?;
    StatusSet::parse(text).ok_or_else(|| {
        let what = "a status from 200 to 599 or a class from \"2xx\" to \"5xx\"";
        Invalid::at(node, format!("expected {what}, found {}", repeated(text)))
    })
}
