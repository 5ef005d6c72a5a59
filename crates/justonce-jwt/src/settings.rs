//! The settings of an issuer.

use std::path::PathBuf;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderName, Uri};
use justonce_net::is_loopback_host;
use thiserror::Error;

use crate::algorithm::Algorithm;

/// By how much the clock of an issuer may differ, by default.
pub const DEFAULT_LEEWAY: Duration = Duration::from_secs(30);
/// The pause between two fetches of keys, by default.
pub const DEFAULT_REFRESH: Duration = Duration::from_secs(300);
/// How long keys count while no newer ones can be had, by default.
pub const DEFAULT_MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// The shortest time between a fetch and the next one that an unknown key causes, by default.
pub const DEFAULT_UNKNOWN_KEY_PAUSE: Duration = Duration::from_secs(10);

/// Where the keys of an issuer are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// In a file. It is read again every few seconds.
    File(PathBuf),
    /// At an address.
    Url(KeyUrl),
}

/// An address with keys: `https://…`, or `http://…` on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUrl {
    pub(crate) uri: Uri,
    pub(crate) ca: Option<PathBuf>,
}

/// Why an address cannot be one with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// It is no address.
    #[error("it is no address like https://login.example.com/keys")]
    Address,
    /// It has a user or a password.
    #[error("it has a user or a password, which would be seen by many")]
    Password,
    /// It is not protected.
    #[error("keys that come in cleartext could be anybody's: use https://")]
    Cleartext,
}

impl KeySource {
    /// Keys at an address. `ca` is a PEM file with the only certificates that its server is trusted
    /// by; without it, those of the system count.
    ///
    /// # Errors
    ///
    /// If it is no address, has a user, or is neither HTTPS nor on this machine.
    pub fn url(text: &str, ca: Option<PathBuf>) -> Result<Self, SourceError> {
        let uri: Uri = text.parse().map_err(|_| SourceError::Address)?;
        let authority = uri.authority().ok_or(SourceError::Address)?;
        if authority.as_str().contains('@') {
            return Err(SourceError::Password);
        }
        match uri.scheme_str() {
            Some("https") if !authority.host().is_empty() => {}
            Some("http") if is_loopback_host(authority.host()) => {}
            Some("http") => return Err(SourceError::Cleartext),
            _ => return Err(SourceError::Address),
        }
        Ok(Self::Url(KeyUrl { uri, ca }))
    }
}

/// An issuer whose tokens are accepted.
///
/// ```
/// use std::time::Duration;
///
/// use justonce_jwt::{Algorithm, IssuerSettings, KeySource};
///
/// // The default: `Authorization: Bearer`, every algorithm, keys fetched every 5 minutes.
/// let keys = KeySource::url("https://login.example.com/keys", None)?;
/// let audience = vec!["shop".to_owned()];
/// let login = IssuerSettings::new("login", "https://login.example.com", audience, keys);
///
/// // Customised.
/// let strict = IssuerSettings {
///     header: http::HeaderName::from_static("x-id-token"),
///     algorithms: vec![Algorithm::Es256],
///     max_age: Duration::from_secs(3600),
///     ..login
/// };
/// # Ok::<(), justonce_jwt::SourceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerSettings {
    /// Its name in logs and metrics.
    pub name: String,
    /// What `iss` must be.
    pub issuer: String,
    /// One of these must be in `aud`. If there are none, every audience is accepted: then a token
    /// that was made for another service counts too.
    pub audience: Vec<String>,
    /// Where its keys are.
    pub keys: KeySource,
    /// The header with the token: behind `Bearer` in `Authorization`, alone in others.
    pub header: HeaderName,
    /// The algorithms that are accepted.
    pub algorithms: Vec<Algorithm>,
    /// By how much its clock may differ.
    pub leeway: Duration,
    /// The pause between two fetches of keys.
    pub refresh: Duration,
    /// How long keys count while no newer ones can be had.
    pub max_age: Duration,
    /// The shortest time between a fetch and the next one that an unknown key causes.
    pub unknown_key_pause: Duration,
}

impl IssuerSettings {
    /// An issuer with the defaults.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        issuer: impl Into<String>,
        audience: Vec<String>,
        keys: KeySource,
    ) -> Self {
        Self {
            name: name.into(),
            issuer: issuer.into(),
            audience,
            keys,
            header: AUTHORIZATION,
            algorithms: Algorithm::ALL.to_vec(),
            leeway: DEFAULT_LEEWAY,
            refresh: DEFAULT_REFRESH,
            max_age: DEFAULT_MAX_AGE,
            unknown_key_pause: DEFAULT_UNKNOWN_KEY_PAUSE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_over_https_or_from_this_machine() {
        let refusal = |text: &str| KeySource::url(text, None).err();
        for good in [
            "https://login.example.com/keys?v=2",
            "https://[2001:db8::1]:8443/",
            "http://127.0.0.1:9/keys",
            "http://localhost/keys",
            "http://[::1]:9/keys",
        ] {
            assert_eq!(refusal(good), None, "{good}");
        }
        for cleartext in ["http://login.example.com/keys", "http://127.0.0.1.example.com/"] {
            assert_eq!(refusal(cleartext), Some(SourceError::Cleartext), "{cleartext}");
        }
        assert_eq!(refusal("https://a:b@c/"), Some(SourceError::Password));
        for other in ["", "/keys", "login.example.com", "ftp://a/b", "file:///keys"] {
            assert!(refusal(other).is_some(), "{other}");
        }
    }
}
