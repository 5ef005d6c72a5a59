//! Certificates from PEM files.

use std::fmt;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Reads all certificates of a PEM file, in its order; at least one.
///
/// # Errors
///
/// If the file cannot be read, holds something that is no certificate, or none at all.
pub fn read_certificates(
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, CertificateFileError> {
    let pem = std::fs::read(path).map_err(CertificateFileError::new)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = read.map_err(CertificateFileError::new)?;
    if certificates.is_empty() {
        return Err(CertificateFileError::new("there is no certificate in it"));
    }
    Ok(certificates)
}

/// Why a file of certificates cannot be used. It does not name the file: its caller also
/// names the setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFileError(Box<str>);

impl CertificateFileError {
    pub(crate) fn new(reason: impl fmt::Display) -> Self {
        Self(reason.to_string().into())
    }
}

impl fmt::Display for CertificateFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CertificateFileError {}
