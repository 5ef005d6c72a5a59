//! Who may vouch for a server that speaks TLS.

use std::path::Path;

use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use redis::{ConnectionAddr, ConnectionInfo, RedisError};

/// Whether `rediss://…` is understood.
pub(crate) const BUILT_IN: bool = cfg!(feature = "tls");

/// Who may vouch for a server: those in a file, or else whom this machine trusts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    /// The certificates in the file, as PEM.
    #[cfg(feature = "tls")]
    only: Option<std::sync::Arc<[u8]>>,
}

impl Trust {
    /// Those in this file and nobody else, if there is one.
    pub(crate) fn of(file: Option<&Path>) -> StoreResult<Self> {
        match file {
            None => Ok(Self::default()),
            Some(path) => Self::of_file(path).map_err(|why| {
                let message = format!("the certificates in {} do not do: {why}", path.display());
                StoreError::not_applied(StoreErrorKind::Stopped, message)
            }),
        }
    }

    #[cfg(feature = "tls")]
    fn of_file(path: &Path) -> Result<Self, String> {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject;

        let pem = std::fs::read(path).map_err(|why| why.to_string())?;
        let mut roots = rustls::RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(&pem) {
            let root = root.map_err(|why| why.to_string())?;
            roots.add(root).map_err(|why| why.to_string())?;
        }
        if roots.is_empty() {
            return Err("there is none".to_owned());
        }
        Ok(Self { only: Some(pem.into()) })
    }

    #[cfg(not(feature = "tls"))]
    fn of_file(_: &Path) -> Result<Self, String> {
        Err("this program was built without the feature `tls`".to_owned())
    }

    /// Whether it names somebody, which is of use with TLS only.
    pub(crate) fn is_special(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.only.is_some();
        #[cfg(not(feature = "tls"))]
        return false;
    }

    /// A connection on which these vouch for the server.
    #[cfg(feature = "tls")]
    pub(crate) fn on(&self, info: ConnectionInfo) -> Result<ConnectionInfo, RedisError> {
        if !is_tls(info.addr()) {
            return Ok(info);
        }
        // The client of Redis wants one for the whole process, and panics if it cannot choose.
        // Whoever wants another one has installed it before.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let Some(only) = &self.only else {
            return Ok(info);
        };
        let root_cert = Some(only.to_vec());
        let certificates = redis::TlsCertificates { client_tls: None, root_cert };
        let client = redis::Client::build_with_tls(info, certificates)?;
        Ok(client.get_connection_info().clone())
    }

    /// A connection as it is.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn on(&self, info: ConnectionInfo) -> Result<ConnectionInfo, RedisError> {
        Ok(info)
    }
}

const fn is_tls(address: &ConnectionAddr) -> bool {
    matches!(address, ConnectionAddr::TcpTls { .. })
}

/// What to do about a server that cannot be reached, where that may be about TLS.
pub(crate) fn advice(address: &ConnectionAddr, error: &RedisError) -> &'static str {
    if !is_tls(address) {
        let hung_up = error.is_connection_dropped() && !error.is_connection_refusal();
        return if hung_up { ". If it wants TLS, write rediss in place of redis" } else { "" };
    }
    advice_on_certificate(error)
}

/// The same for a server that says nothing.
pub(crate) const fn advice_on_silence(address: &ConnectionAddr) -> &'static str {
    if is_tls(address) { ". Does it speak TLS?" } else { "" }
}

#[cfg(feature = "tls")]
fn advice_on_certificate(error: &RedisError) -> &'static str {
    use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
    use rustls::Error::InvalidCertificate;

    match rustls_error(error) {
        Some(InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
            ". The server must be asked for by a name that its certificate has"
        }
        Some(InvalidCertificate(_)) => {
            ". Set the file of the authority that signed it: `ca_file` of the store, `redis.ca` of \
             the gateway"
        }
        _ => "",
    }
}

/// The client of Redis keeps its causes in an `Arc`, and those of TLS in an error of input.
#[cfg(feature = "tls")]
fn rustls_error(error: &RedisError) -> Option<&rustls::Error> {
    type Shared = std::sync::Arc<dyn std::error::Error + Send + Sync>;
    let cause = std::error::Error::source(error)?.downcast_ref::<Shared>()?;
    cause.downcast_ref::<std::io::Error>()?.get_ref()?.downcast_ref()
}

#[cfg(not(feature = "tls"))]
const fn advice_on_certificate(_: &RedisError) -> &'static str {
    ""
}
