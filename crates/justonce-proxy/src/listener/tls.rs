//! TLS for clients, from PEM files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use justonce_net::read_certificates;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

/// The certificate of a listener, and its key. HTTP/2 and HTTP/1.1 are offered.
///
/// Clones share the certificate: when it is reloaded, new connections of all of them use the new
/// one.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ArcSwap<ServerConfig>>,
}

impl ServerTls {
    /// Reads PEM files: the certificate chain, beginning with the server's own, and its key.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or they do not belong together.
    pub fn from_files(certificates: &Path, key: &Path) -> Result<Self, ServerTlsError> {
        let config = Self::read(certificates, key)?;
        Ok(Self { config: Arc::new(ArcSwap::from_pointee(config)) })
    }

    /// Reads the files again, for new connections.
    ///
    /// # Errors
    ///
    /// As [`from_files`](Self::from_files); the old certificate stays in use.
    pub fn reload(&self, certificates: &Path, key: &Path) -> Result<(), ServerTlsError> {
        self.config.store(Arc::new(Self::read(certificates, key)?));
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }

    fn read(certificates: &Path, key: &Path) -> Result<ServerConfig, ServerTlsError> {
        let chain = read_certificates(certificates)
            .map_err(|why| ServerTlsError::new(certificates, why))?;
        let private =
            PrivateKeyDer::from_pem_file(key).map_err(|why| ServerTlsError::new(key, why))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
            .map_err(|why| ServerTlsError::new(key, why))?;
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
#[derive(Debug, Error)]
#[error("TLS cannot be offered with {}: {why}", .path.display())]
pub struct ServerTlsError {
    path: PathBuf,
    why: Box<str>,
}

impl ServerTlsError {
    fn new(path: &Path, why: impl fmt::Display) -> Self {
        Self { path: path.into(), why: why.to_string().into() }
    }
}
