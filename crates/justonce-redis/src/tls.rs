//! TLS: trust roots, and what to do about connections that fail because of TLS.

use std::path::Path;
use std::sync::Arc;

use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use redis::{ConnectionAddr, ConnectionInfo, RedisError};

/// The trust roots of all connections of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roots {
    /// Certificates as PEM; without them the system's roots count.
    pem: Option<Arc<[u8]>>,
}

impl Roots {
    /// The roots in a file and no others, or those of the system.
    pub(crate) fn new(ca_file: Option<&Path>) -> StoreResult<Self> {
        let Some(path) = ca_file else { return Ok(Self::default()) };
        let pem = read(path).map_err(|why| {
            let message = format!("the certificates in {} cannot be used: {why}", path.display());
            StoreError::not_applied(StoreErrorKind::Stopped, message)
        })?;
        Ok(Self { pem: Some(pem.into()) })
    }

    /// Whether they come from a file, which is of use with TLS only.
    pub(crate) const fn are_from_file(&self) -> bool {
        self.pem.is_some()
    }

    /// A connection that trusts them.
    #[cfg(feature = "tls")]
    pub(crate) fn applied_to(&self, info: ConnectionInfo) -> Result<ConnectionInfo, RedisError> {
        if !is_tls(info.addr()) {
            return Ok(info);
        }
        // The Redis client panics if the process has none and it cannot choose one.
        justonce_net::install_crypto_provider();
        let Some(pem) = &self.pem else { return Ok(info) };
        let certificates =
            redis::TlsCertificates { client_tls: None, root_cert: Some(pem.to_vec()) };
        let client = redis::Client::build_with_tls(info, certificates)?;
        Ok(client.get_connection_info().clone())
    }

    /// A connection as it is.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn applied_to(&self, info: ConnectionInfo) -> Result<ConnectionInfo, RedisError> {
        Ok(info)
    }
}

/// A file of certificates that can all be trust roots.
#[cfg(feature = "tls")]
fn read(path: &Path) -> Result<Vec<u8>, String> {
    justonce_net::TrustRoots::from_file(path).map_err(|why| why.to_string())?;
    std::fs::read(path).map_err(|why| why.to_string())
}

#[cfg(not(feature = "tls"))]
fn read(_: &Path) -> Result<Vec<u8>, String> {
    Err("this program was built without the feature `tls`".to_owned())
}

const fn is_tls(address: &ConnectionAddr) -> bool {
    matches!(address, ConnectionAddr::TcpTls { .. })
}

/// What to do about a server that requires TLS.
const TLS_HINT: &str = ". If the server requires TLS, write rediss in place of redis";

/// What to do about a server that cannot be reached, where TLS may be the reason.
pub(crate) fn advice(address: &ConnectionAddr, error: &RedisError) -> &'static str {
    if !is_tls(address) {
        let hung_up = error.is_connection_dropped() && !error.is_connection_refusal();
        return if hung_up { TLS_HINT } else { "" };
    }
    advice_on_certificate(error)
}

/// The same for a server that does not respond.
pub(crate) const fn advice_on_silence(address: &ConnectionAddr) -> &'static str {
    if is_tls(address) { ". Does it speak TLS?" } else { "" }
}

#[cfg(feature = "tls")]
fn advice_on_certificate(error: &RedisError) -> &'static str {
    match justonce_net::certificate_refusal(error) {
        Some(justonce_net::CertificateRefusal::WrongName) => {
            ". The server must be asked for by a name that its certificate has"
        }
        Some(_) => {
            ". Set the file of the authority that signed it: `ca_file` of the store, `redis.ca` of \
             the gateway"
        }
        None => "",
    }
}

#[cfg(not(feature = "tls"))]
const fn advice_on_certificate(_: &RedisError) -> &'static str {
    ""
}
