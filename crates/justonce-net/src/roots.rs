//! TLS trust roots, and client configurations with them.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore};

use crate::certificates::{CertificateFileError, read_certificates};
use crate::identity::ClientIdentity;

/// The certificates that a client accepts as the end of a server's certificate chain.
#[derive(Clone, Debug)]
pub struct TrustRoots(RootCertStore);

impl TrustRoots {
    /// No roots: every certificate is refused.
    #[must_use]
    pub fn empty() -> Self {
        Self(RootCertStore::empty())
    }

    /// The roots of the system. Those that cannot be read are left out: if one of them is needed,
    /// the connection fails with a clear error.
    #[must_use]
    pub fn system() -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Self(roots)
    }

    /// The roots in a PEM file, and no others.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a certificate in it cannot be a root.
    pub fn from_file(path: &Path) -> Result<Self, CertificateFileError> {
        Self::empty().with_file(path)
    }

    /// Adds the roots in a PEM file.
    ///
    /// # Errors
    ///
    /// As [`from_file`](Self::from_file).
    pub fn with_file(mut self, path: &Path) -> Result<Self, CertificateFileError> {
        for certificate in read_certificates(path)? {
            self.0.add(certificate).map_err(CertificateFileError::new)?;
        }
        Ok(self)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a server checks the certificates of its clients with: those that do not end at one of
    /// these roots are refused, and so are clients without one, if they are required.
    ///
    /// # Errors
    ///
    /// If there are no roots.
    pub fn client_verifier(
        self,
        are_required: bool,
    ) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
        let provider = Arc::new(ring::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(self.0), provider);
        if are_required { builder.build() } else { builder.allow_unauthenticated().build() }
    }

    /// A client configuration with these roots that offers one protocol by ALPN, and shows no
    /// certificate.
    ///
    /// # Errors
    ///
    /// If the TLS library refuses its own defaults.
    pub fn client_config(self, protocol: &[u8]) -> Result<ClientConfig, rustls::Error> {
        self.client_config_as(protocol, None)
    }

    /// The same with the certificate that is shown to servers that ask for one.
    ///
    /// # Errors
    ///
    /// If the TLS library refuses its own defaults, or the certificate.
    pub fn client_config_as(
        self,
        protocol: &[u8],
        identity: Option<ClientIdentity>,
    ) -> Result<ClientConfig, rustls::Error> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.0);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(ClientIdentity { chain, key }) => builder.with_client_auth_cert(chain, key)?,
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(config)
    }
}

/// Sets the crypto provider of the process unless one is set: for libraries that take no
/// configuration and panic without it.
pub fn install_crypto_provider() {
    if CryptoProvider::get_default().is_none() {
        // It fails only if another thread was faster.
        let _ = ring::default_provider().install_default();
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
    fn every_certificate_of_a_file_becomes_a_root() {
        let pem =
            |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap().cert.pem();
        let both = file(&(pem("a") + &pem("b")));
        assert_eq!(TrustRoots::from_file(both.path()).unwrap().0.len(), 2);
        let more = TrustRoots::from_file(both.path()).unwrap().with_file(both.path()).unwrap();
        assert!(!more.is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_used_says_why() {
        let reason = |text: &str| TrustRoots::from_file(file(text).path()).unwrap_err().to_string();
        assert_eq!(reason("nothing of use"), "there is no certificate in it");
        let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(!reason(no_certificate).is_empty());
        let missing = TrustRoots::from_file(Path::new("/no/such/file")).unwrap_err();
        assert!(missing.to_string().contains("No such file"), "{missing}");
    }
}
