//! TLS for clients, from PEM files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use justonce_net::{TrustRoots, read_certificates};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

use crate::metrics::{Handshake, HandshakeMeters};

/// The PEM files of TLS for clients.
///
/// ```
/// use justonce_proxy::ServerTlsFiles;
///
/// // The default: clients are not asked for certificates.
/// let files = ServerTlsFiles::new("cert.pem", "key.pem");
///
/// // Customised: each must show one.
/// let files = files.with_clients("clients-ca.pem", true);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTlsFiles {
    certificates: PathBuf,
    key: PathBuf,
    clients: Option<(PathBuf, bool)>,
}

impl ServerTlsFiles {
    /// The certificate chain, beginning with the server's own, and its key.
    #[must_use]
    pub fn new(certificates: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { certificates: certificates.into(), key: key.into(), clients: None }
    }

    /// Asks clients for certificates that those in a file vouch for. If they are required, clients
    /// without one cannot connect; those with another one never can.
    #[must_use]
    pub fn with_clients(mut self, ca: impl Into<PathBuf>, are_required: bool) -> Self {
        self.clients = Some((ca.into(), are_required));
        self
    }
}

/// The certificate of a listener, and its key. HTTP/2 and HTTP/1.1 are offered.
///
/// Clones share the certificate: when it is reloaded, new connections of all of them use the new
/// one. Open connections go on.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ArcSwap<ServerConfig>>,
    meters: Arc<HandshakeMeters>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// If one cannot be read or they do not belong together.
    pub fn from_files(files: &ServerTlsFiles) -> Result<Self, ServerTlsError> {
        let config = Arc::new(ArcSwap::from_pointee(read(files)?));
        Ok(Self { config, meters: Arc::default() })
    }

    /// Reads the files again, or others, for new connections.
    ///
    /// # Errors
    ///
    /// As [`from_files`](Self::from_files); what was read before stays in use.
    pub fn reload(&self, files: &ServerTlsFiles) -> Result<(), ServerTlsError> {
        self.config.store(Arc::new(read(files)?));
        Ok(())
    }

    /// Counts a handshake.
    pub(super) fn count(&self, end: Handshake) {
        self.meters.count(end);
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }
}

fn read(files: &ServerTlsFiles) -> Result<ServerConfig, ServerTlsError> {
    let ServerTlsFiles { certificates, key, clients } = files;
    let chain =
        read_certificates(certificates).map_err(|why| ServerTlsError::new(certificates, why))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|why| ServerTlsError::new(key, why))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = match clients {
        None => WebPkiClientVerifier::no_client_auth(),
        Some((ca, are_required)) => TrustRoots::from_file(ca)
            .map_err(|why| ServerTlsError::new(ca, why))?
            .client_verifier(*are_required)
            .map_err(|why| ServerTlsError::new(ca, why))?,
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder.with_client_cert_verifier(verifier).with_single_cert(chain, private)
        })
        .map_err(|why| ServerTlsError::new(key, why))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if clients.is_some() {
        // A resumed session would take a certificate for valid that has expired since.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
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
