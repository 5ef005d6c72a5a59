//! Certificates for private servers.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;

use super::ServerError;

/// The names of a certificate's files in the directory of its server.
pub(super) const CHAIN: &str = "server.pem";
pub(super) const KEY: &str = "server-key.pem";
pub(super) const AUTHORITY: &str = "authority.pem";

/// A certificate authority, trusted only where its file is configured.
///
/// ```
/// use justonce_testbed::{Authority, PostgresOptions};
///
/// # fn main() -> Result<(), justonce_testbed::ServerError> {
/// let authority = Authority::new()?;
/// let certificate = authority.certificate(&["localhost", "127.0.0.1"])?;
/// let options = PostgresOptions { tls: Some(certificate), ..PostgresOptions::default() };
/// assert!(authority.file().exists());
/// # Ok(())
/// # }
/// ```
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

/// The certificate of a server, its key, and the certificate of its authority, as PEM.
#[derive(Clone)]
pub struct Certificate {
    chain: String,
    key: String,
    authority: String,
}

impl Authority {
    /// A new authority.
    ///
    /// # Errors
    ///
    /// If it cannot be created or written to disk.
    pub fn new() -> Result<Self, ServerError> {
        // Clients would take a second authority of the same name for the first, badly signed.
        static MADE: AtomicU64 = AtomicU64::new(1);
        let name = format!("test authority {}", MADE.fetch_add(1, Ordering::Relaxed));
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().map_err(failed)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(failed)?;
        let directory = tempfile::tempdir().map_err(failed)?;
        fs::write(directory.path().join(AUTHORITY), issuer.pem()).map_err(failed)?;
        Ok(Self { issuer, directory })
    }

    /// The file of the authority's certificate; removed with this handle.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.directory.path().join(AUTHORITY)
    }

    /// A certificate for a server of these names and addresses.
    ///
    /// # Errors
    ///
    /// If it cannot be created, or a name is not valid.
    pub fn certificate(&self, names: &[&str]) -> Result<Certificate, ServerError> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().map_err(failed)?;
        let params = CertificateParams::new(names).map_err(failed)?;
        let made = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Certificate {
            chain: made.pem(),
            key: key.serialize_pem(),
            authority: self.issuer.pem(),
        })
    }
}

impl Certificate {
    /// Writes its files. Only the owner may read the key.
    pub(super) fn write_to(&self, directory: &Path) -> Result<(), ServerError> {
        fs::write(directory.join(CHAIN), &self.chain).map_err(failed)?;
        fs::write(directory.join(AUTHORITY), &self.authority).map_err(failed)?;
        let mut key = OpenOptions::new();
        key.create(true).truncate(true).write(true).mode(0o600);
        let mut key = key.open(directory.join(KEY)).map_err(failed)?;
        key.write_all(self.key.as_bytes()).map_err(failed)
    }
}

fn failed(error: impl fmt::Display) -> ServerError {
    ServerError::new("no certificate", &error)
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}
