//! The certificate that a client shows.

use std::fmt;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::certificates::{CertificateFileError, read_certificates};

/// The certificate that a client shows to a server, and its key.
pub struct ClientIdentity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl ClientIdentity {
    /// Reads PEM files: the certificate chain, beginning with the client's own, and its key.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or they do not belong together; with the file that is wrong.
    pub fn from_files(
        certificates: &Path,
        key: &Path,
    ) -> Result<Self, (PathBuf, CertificateFileError)> {
        let chain = read_certificates(certificates).map_err(|why| (certificates.into(), why))?;
        let wrong_key = |why: &dyn fmt::Display| (key.to_owned(), CertificateFileError::new(why));
        let key = PrivateKeyDer::from_pem_file(key).map_err(|why| wrong_key(&why))?;
        let provider = rustls::crypto::ring::default_provider();
        CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider)
            .map_err(|why| wrong_key(&why))?;
        Ok(Self { chain, key })
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn a_certificate_and_a_key_that_do_not_belong_together_are_refused() {
        let make = || rcgen::generate_simple_self_signed(["shop".to_owned()]).unwrap();
        let (one, other) = (make(), make());
        let certificate = file(&one.cert.pem());
        let key =
            |made: &rcgen::CertifiedKey<rcgen::KeyPair>| file(&made.signing_key.serialize_pem());
        let (right, wrong) = (key(&one), key(&other));
        let read = ClientIdentity::from_files(certificate.path(), right.path()).unwrap();
        assert_eq!(read.chain.len(), 1);
        assert!(!format!("{read:?}").contains("PRIVATE"));
        let (path, _) = ClientIdentity::from_files(certificate.path(), wrong.path()).unwrap_err();
        assert_eq!(path, wrong.path());
        let (path, _) = ClientIdentity::from_files(right.path(), right.path()).unwrap_err();
        assert_eq!(path, right.path());
    }
}
