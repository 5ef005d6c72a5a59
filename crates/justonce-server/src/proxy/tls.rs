//! TLS to upstreams: the system's authorities, and those of a file.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::SettingsError;

pub(super) fn connector(ca_file: Option<&Path>) -> Result<TlsConnector, SettingsError> {
    let mut roots = RootCertStore::empty();
    // Single unreadable authorities of the system are no reason to stop: those that are needed
    // will be missed with a clear error when connecting.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        let mut found = false;
        let read = CertificateDer::pem_file_iter(path);
        for certificate in read.map_err(|why| SettingsError::authorities(path, why))? {
            let certificate = certificate.map_err(|why| SettingsError::authorities(path, why))?;
            roots.add(certificate).map_err(|why| SettingsError::authorities(path, why))?;
            found = true;
        }
        if !found {
            return Err(SettingsError::authorities(path, "there is no certificate in it"));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| SettingsError::Tls(why.to_string().into()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
