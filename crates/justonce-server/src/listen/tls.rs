//! TLS to clients, from PEM files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// Who we are to clients: a certificate and its key. HTTP/2 and HTTP/1.1 are offered.
///
/// All clones change their certificate together, for the connections that come after.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ArcSwap<ServerConfig>>,
}

impl ServerTls {
    /// Reads PEM files: the certificate first, then those that lead from it to an authority; and
    /// the certificate's key.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or they do not belong together.
    pub fn from_files(certificates: &Path, key: &Path) -> Result<Self, TlsError> {
        let config = Self::read(certificates, key)?;
        Ok(Self { config: Arc::new(ArcSwap::from_pointee(config)) })
    }

    /// Reads the files again, for connections that come from now on.
    ///
    /// # Errors
    ///
    /// As [`from_files`](Self::from_files); what was served before is served on.
    pub fn renew(&self, certificates: &Path, key: &Path) -> Result<(), TlsError> {
        self.config.store(Arc::new(Self::read(certificates, key)?));
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }

    fn read(certificates: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
        let read = CertificateDer::pem_file_iter(certificates)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let chain = read.map_err(|why| TlsError::new(certificates, why))?;
        if chain.is_empty() {
            return Err(TlsError::new(certificates, "there is no certificate in it"));
        }
        let private = PrivateKeyDer::from_pem_file(key).map_err(|why| TlsError::new(key, why))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
            .map_err(|why| TlsError::new(key, why))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

/// Why TLS cannot be offered.
#[derive(Debug)]
pub struct TlsError {
    path: PathBuf,
    why: Box<str>,
}

impl TlsError {
    fn new(path: &Path, why: impl fmt::Display) -> Self {
        Self { path: path.into(), why: why.to_string().into() }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS cannot be offered with {}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for TlsError {}
