//! `[jwt.NAME]`: who issues the tokens that identify callers, and how they are verified.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Uri};
use justonce_http::ScopePart;
use justonce_net::is_loopback_host;

use super::upstreams::{is_name, shown};
use crate::declare::{Layer, settings};
use crate::invalid::{Invalid, Read};
use crate::kind::{custom, full_text, header, list, one_or_more, optional, path, repeated, time};
use crate::nearest::did_you_mean;
use crate::report::Report;
use crate::section::{Section, Sourced};
use crate::tree::{JWT, Node, Origin, Value};

/// More issuers than this are a generated file gone wrong; each token may be compared with all.
const MAX_ISSUERS: usize = 100;
const SECOND: Duration = Duration::from_secs(1);
const LONGEST_LEEWAY: Duration = Duration::from_secs(300);
const DAY: Duration = Duration::from_secs(24 * 3600);
const MONTH: Duration = Duration::from_secs(31 * 24 * 3600);
/// What stands for every audience.
const ANY: &str = "*";
/// The algorithms that can be verified, as tokens name them.
const ALGORITHMS: [&str; 9] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];

settings! {
    /// What one source says about an issuer of tokens.
    layer JwtLayer {
        /// What `iss` of its tokens is, letter by letter; needed.
        issuer: String = custom(full_text), example "https://login.example.com", live;
        /// What must be in `aud`: one of these; needed. `"*"` accepts tokens for everybody.
        audience: Vec<String> = one_or_more(full_text), example "https://shop.example.com", live;
        /// Its public keys (a JWK Set); needed: an address with `https://`, or a file, which is
        /// read again when it changes ([more](operating.md#tokens)).
        jwks: JwksSource = custom(source),
            example "https://login.example.com/.well-known/jwks.json", live;
        /// Certificates (PEM) that the server of `jwks` is trusted by, and no others; without it,
        /// the system's.
        ca: Option<PathBuf> = optional(custom(path)), example "/etc/justonce/login-ca.pem", live;
        /// The header with the token: behind `Bearer` in `authorization`, alone in others.
        header: HeaderName = custom(header), default "authorization", example "x-id-token", live;
        /// The algorithms of signatures that are accepted; all are asymmetric.
        algorithms: Vec<String> = list(algorithm),
            default "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA",
            example "ES256, EdDSA", live;
        /// By how much the clock of the issuer may differ.
        leeway: Duration = time(Duration::ZERO..=LONGEST_LEEWAY), default "30s", example "5s", live;
        /// The pause between two fetches of its keys.
        refresh: Duration = time(SECOND..=DAY), default "5m", example "1h", live;
        /// How long its keys count while no newer ones can be had; after that its tokens get 503.
        max_age: Duration = time(SECOND..=MONTH), default "24h", example "1h", live;
        /// How long no further fetch is made because a token names an unknown key: strangers can
        /// make up names of keys.
        unknown_key_pause: Duration = time(SECOND..=DAY), default "10s", example "1m", live;
    }
}

/// Where the keys of an issuer are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwksSource {
    /// At this address.
    Url(String),
    /// In this file.
    File(PathBuf),
}

/// An issuer of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// Its name in logs and metrics.
    pub name: String,
    /// What `iss` must be.
    pub issuer: String,
    /// One of these must be in `aud`; none if every audience is accepted.
    pub audience: Vec<String>,
    /// Where its keys are.
    pub jwks: JwksSource,
    /// The only certificates that the server of the keys is trusted by; nothing for the system's.
    pub ca: Option<PathBuf>,
    /// The header with the token.
    pub header: HeaderName,
    /// The algorithms that are accepted, as tokens name them.
    pub algorithms: Vec<String>,
    /// By how much its clock may differ.
    pub leeway: Duration,
    /// The pause between two fetches of its keys.
    pub refresh: Duration,
    /// How long keys count while no newer ones can be had.
    pub max_age: Duration,
    /// The pause between two fetches because of unknown keys.
    pub unknown_key_pause: Duration,
}

/// What is known of all issuers while the rest is read.
pub(super) struct Issuers {
    /// Those that are right, by their names.
    pub(super) all: Vec<JwtSettings>,
    is_any_named: bool,
    /// Whether clients are asked for certificates.
    asks_clients: bool,
}

/// Reads all issuers. What is wrong is reported.
pub(super) fn issuers(root: &Section<'_>, report: &mut Report) -> Issuers {
    let named = root.inside(JWT);
    let asks_clients = root.inside("tls").node("client_ca").is_some();
    let mut found = Issuers { all: Vec::new(), is_any_named: false, asks_clients };
    for (at, (name, member)) in named.members().enumerate() {
        if at >= MAX_ISSUERS {
            let message = format!("there are more than {MAX_ISSUERS} issuers");
            report.at(&member.name_origin, message, None);
            break;
        }
        found.is_any_named = true;
        if let Err(why) = is_name(name) {
            report.at(&member.name_origin, format!("`{JWT}.{}`: {why}", shown(name)), None);
        }
        if matches!(member.node.value, Value::Table(_)) {
            let place = &member.name_origin;
            let read = issuer(name, &named.inside(name), place, report);
            let twice = |read: &JwtSettings| found.all.iter().find(|o| o.issuer == read.issuer);
            if let Some(other) = read.as_ref().and_then(twice) {
                let message =
                    format!("`{JWT}.{name}.issuer`: `{JWT}.{}` is for the same issuer", other.name);
                report.at(&named.inside(name).origin("issuer"), message, None);
            }
            found.all.extend(read);
        }
    }
    found
}

impl Issuers {
    /// Reports a scope with a claim where nobody issues tokens, and one with a certificate where
    /// nobody is asked for any.
    pub(super) fn check(&self, scope: Option<&Sourced<Vec<ScopePart>>>, report: &mut Report) {
        let Some(scope) = scope else { return };
        if scope.value.contains(&ScopePart::Certificate) && !self.asks_clients {
            let message = "`scope`: `certificate` needs clients to be asked for one".to_owned();
            let help = "name what theirs are trusted by in `tls.client_ca`".to_owned();
            report.at(&scope.origin, message, Some(help));
        }
        let claim = scope.value.iter().find(|part| matches!(part, ScopePart::Claim(_)));
        if let Some(claim) = claim.filter(|_| !self.is_any_named) {
            let message = format!("`scope`: `{claim}` needs to know whose tokens are trusted");
            let help = format!("write `[{JWT}.NAME]` with `issuer`, `audience` and `jwks`");
            report.at(&scope.origin, message, Some(help));
        }
    }
}

fn issuer(
    name: &str,
    section: &Section<'_>,
    place: &Origin,
    report: &mut Report,
) -> Option<JwtSettings> {
    let layer = JwtLayer::complete(section, report);
    let mut missing = |what: &str, example: &str| {
        if section.node(what).is_none() {
            let message = format!("`{JWT}.{name}` has no `{what}`");
            report.at(place, message, Some(format!("as in `{what} = {example}`")));
        }
    };
    missing("issuer", "\"https://login.example.com\"");
    missing("audience", "\"https://shop.example.com\"");
    missing("jwks", "\"https://login.example.com/.well-known/jwks.json\"");
    check(name, &layer, report);
    let audience = layer.audience?.value;
    Some(JwtSettings {
        name: name.to_owned(),
        issuer: layer.issuer?.value,
        audience: if audience.iter().any(|one| one == ANY) { Vec::new() } else { audience },
        jwks: layer.jwks?.value,
        ca: layer.ca?.value,
        header: layer.header?.value,
        algorithms: layer.algorithms?.value,
        leeway: layer.leeway?.value,
        refresh: layer.refresh?.value,
        max_age: layer.max_age?.value,
        unknown_key_pause: layer.unknown_key_pause?.value,
    })
}

/// What cannot be said together.
fn check(name: &str, layer: &JwtLayer, report: &mut Report) {
    if let Some(audience) = &layer.audience
        && audience.value.is_empty()
    {
        let message = format!("`{JWT}.{name}.audience` is empty: no token would be accepted");
        report.at(&audience.origin, message, Some(format!("\"{ANY}\" accepts all")));
    }
    if let Some(algorithms) = &layer.algorithms
        && algorithms.value.is_empty()
    {
        let message = format!("`{JWT}.{name}.algorithms` is empty: no token would be accepted");
        report.at(&algorithms.origin, message, None);
    }
    let is_https = |jwks: &Sourced<JwksSource>| match &jwks.value {
        JwksSource::Url(url) => url.starts_with("https:"),
        JwksSource::File(_) => false,
    };
    if let (Some(ca), Some(jwks)) = (&layer.ca, &layer.jwks)
        && ca.value.is_some()
        && !is_https(jwks)
    {
        let message = format!("`{JWT}.{name}.ca` belongs to a `jwks` with `https://`");
        report.at(&ca.origin, message, None);
    }
    if let (Some(refresh), Some(max_age)) = (&layer.refresh, &layer.max_age)
        && max_age.value < refresh.value
    {
        let message = format!(
            "`{JWT}.{name}.max_age` is shorter than `refresh`: keys would count no more before \
             they are fetched again"
        );
        report.at(&crate::section::first_set([&max_age.origin, &refresh.origin]), message, None);
    }
}

/// An address or a file.
fn source(node: &Node) -> Read<JwksSource> {
    let text = full_text(node)?;
    if !text.contains("://") {
        return Ok(JwksSource::File(PathBuf::from(text)));
    }
    let wrong = |why: &str| {
        let like = "as in \"https://login.example.com/.well-known/jwks.json\"";
        // There may be a password in it.
        let shown =
            if text.contains('@') { String::new() } else { format!(", found {}", repeated(&text)) };
        Invalid::at(node, format!("{why}, {like}{shown}"))
    };
    let uri: Uri = text.parse().map_err(|_| wrong("expected an address or a file"))?;
    let authority = uri.authority().filter(|authority| !authority.host().is_empty());
    let Some(authority) = authority else { return Err(wrong("expected an address or a file")) };
    if authority.as_str().contains('@') {
        return Err(wrong("keys are fetched without user and password"));
    }
    match uri.scheme_str() {
        Some("https") => Ok(JwksSource::Url(text)),
        Some("http") if is_loopback_host(authority.host()) => Ok(JwksSource::Url(text)),
        Some("http") => Err(wrong("keys that come in cleartext could be anybody's: use https://")),
        _ => Err(wrong("expected https:// or a file")),
    }
}

fn algorithm(node: &Node) -> Read<String> {
    let text = full_text(node)?;
    if ALGORITHMS.contains(&text.as_str()) {
        return Ok(text);
    }
    let message = format!("expected one of {}, found {}", ALGORITHMS.join(", "), repeated(&text));
    let help = if text == "none" || text.starts_with("HS") {
        Some("with it, everybody who can check a token could make one".to_owned())
    } else {
        did_you_mean(&text, ALGORITHMS)
    };
    Err(Invalid::at(node, message).help(help))
}
