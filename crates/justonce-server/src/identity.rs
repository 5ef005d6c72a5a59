//! The issuers whose tokens identify callers, and the certificates of clients.

use std::sync::Arc;

use anyhow::Context;
use justonce::http::CallerUsage;
use justonce::{Engine, SystemClock};
use justonce_jwt::{Algorithm, IssuerSettings, KeySet, KeySource, Verifier, VerifierParts};
use justonce_proxy::ServerTlsFiles;

use crate::config::{JwksSource, JwtSettings, Settings, Tls};

/// What is known of callers, and outlives a reload.
pub(crate) struct Callers {
    /// What they have used of their limits.
    pub(crate) usage: CallerUsage,
    /// Verifies their tokens.
    pub(crate) verifier: Arc<Verifier>,
    jwt: Vec<JwtSettings>,
}

impl Callers {
    /// Starts with these settings. The keys of issuers are fetched from now on.
    ///
    /// # Errors
    ///
    /// If the keys of an issuer are in a file that cannot be used.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, if there is an issuer.
    pub(crate) fn new(engine: &Engine, settings: &Settings) -> anyhow::Result<Self> {
        settings.jwt.iter().try_for_each(readable)?;
        let engine = engine.clone();
        let parts = VerifierParts {
            clock: Arc::new(SystemClock::new()),
            schedule: Arc::new(move |pause| engine.schedule("jwks", pause)),
        };
        let verifier = Verifier::new(issuers(settings)?, parts);
        Ok(Self { usage: CallerUsage::default(), verifier, jwt: settings.jwt.clone() })
    }

    /// The same with new settings. Issuers that are as before keep their keys.
    ///
    /// # Errors
    ///
    /// If the keys of a new or changed issuer are in a file that cannot be used.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    pub(crate) fn renewed(&self, settings: &Settings) -> anyhow::Result<Self> {
        let mut new = settings.jwt.iter().filter(|jwt| !self.jwt.contains(jwt));
        new.try_for_each(readable)?;
        let verifier = self.verifier.renewed(issuers(settings)?);
        Ok(Self { usage: self.usage.clone(), verifier, jwt: settings.jwt.clone() })
    }
}

fn issuers(settings: &Settings) -> anyhow::Result<Vec<IssuerSettings>> {
    settings.jwt.iter().map(issuer).collect()
}

/// The keys that could not be used, each with the reason. Addresses are not asked.
pub(crate) fn problems(settings: &Settings) -> Vec<String> {
    let problem = |jwt: &JwtSettings| {
        let why = issuer(jwt).and_then(|_| readable(jwt)).err()?;
        Some(format!("{why:#}"))
    };
    settings.jwt.iter().filter_map(problem).collect()
}

/// Whether the keys are in a file that can be used, or elsewhere.
fn readable(jwt: &JwtSettings) -> anyhow::Result<()> {
    let JwksSource::File(path) = &jwt.jwks else { return Ok(()) };
    let place = || format!("`jwt.{}.jwks`: {}", jwt.name, path.display());
    let document = std::fs::read(path).with_context(place)?;
    KeySet::parse(&document).map(|_| ()).with_context(place)
}

fn issuer(jwt: &JwtSettings) -> anyhow::Result<IssuerSettings> {
    let place = || format!("`jwt.{}.jwks`", jwt.name);
    let keys = match &jwt.jwks {
        JwksSource::File(path) => KeySource::File(path.clone()),
        JwksSource::Url(url) => KeySource::url(url, jwt.ca.clone()).with_context(place)?,
    };
    let known = jwt.algorithms.iter().filter_map(|name| Algorithm::from_name(name));
    let (name, issuer, audience) = (jwt.name.as_str(), jwt.issuer.as_str(), jwt.audience.clone());
    Ok(IssuerSettings {
        header: jwt.header.clone(),
        algorithms: known.collect(),
        leeway: jwt.leeway,
        refresh: jwt.refresh,
        max_age: jwt.max_age,
        unknown_key_pause: jwt.unknown_key_pause,
        ..IssuerSettings::new(name, issuer, audience, keys)
    })
}

/// The files of TLS for clients.
pub(crate) fn tls_files(tls: &Tls) -> ServerTlsFiles {
    let files = ServerTlsFiles::new(&tls.cert, &tls.key);
    match &tls.clients {
        None => files,
        Some(clients) => files.with_clients(&clients.ca, clients.is_required),
    }
}
