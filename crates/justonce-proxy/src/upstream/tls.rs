//! TLS to upstreams, from PEM files.

use std::path::PathBuf;
use std::sync::Arc;

use justonce_net::{ClientIdentity, TrustRoots};
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::address::UpstreamAddress;
use super::settings::{Protocol, SettingsError};

/// TLS to upstreams.
///
/// ```
/// use justonce_proxy::{UpstreamRoots, UpstreamTls};
///
/// // The default: the roots of the system, no certificate of our own.
/// let plain = UpstreamTls::default();
/// assert_eq!(plain.roots, UpstreamRoots::System);
/// // An authority of our own and no other, and a name that is not in the address.
/// let own = UpstreamTls {
///     roots: UpstreamRoots::Only("/etc/justonce/ca.pem".into()),
///     server_name: Some("payments.internal".to_owned()),
///     ..UpstreamTls::default()
/// };
/// assert_ne!(own, plain);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// What upstreams are trusted by.
    pub roots: UpstreamRoots,
    /// The certificate that is shown to upstreams that ask for one; without it, none is.
    pub certificate: Option<ClientCertificate>,
    /// The name that is sent (SNI) and that an upstream's certificate must carry; without it, the
    /// host in its address.
    pub server_name: Option<String>,
}

/// What upstreams are trusted by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UpstreamRoots {
    /// The roots of the system.
    #[default]
    System,
    /// Those, and the ones in a PEM file.
    SystemAnd(PathBuf),
    /// The ones in a PEM file, and no others.
    Only(PathBuf),
}

/// The PEM files of a client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, and those between it and a root.
    pub chain: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl UpstreamTls {
    /// Reads the files.
    pub(super) fn connector(&self, protocol: Protocol) -> Result<TlsConnector, SettingsError> {
        let (roots, path) = match &self.roots {
            UpstreamRoots::System => (Ok(TrustRoots::system()), None),
            UpstreamRoots::SystemAnd(path) => (TrustRoots::system().with_file(path), Some(path)),
            UpstreamRoots::Only(path) => (TrustRoots::from_file(path), Some(path)),
        };
        let roots = roots
            .map_err(|why| SettingsError::Authorities(path.cloned().unwrap_or_default(), why))?;
        let read = |files: &ClientCertificate| {
            let read = ClientIdentity::from_files(&files.chain, &files.key);
            read.map_err(|(path, why)| SettingsError::Identity(path, why))
        };
        let identity = self.certificate.as_ref().map(read).transpose()?;
        let config =
            roots.client_config_as(protocol.alpn(), identity).map_err(SettingsError::Tls)?;
        Ok(TlsConnector::from(Arc::new(config)))
    }

    /// The name that the certificate of an upstream must carry.
    pub(super) fn name_of(
        &self,
        address: &UpstreamAddress,
    ) -> Result<ServerName<'static>, SettingsError> {
        let name = self.server_name.as_deref().unwrap_or(address.host());
        let parsed = ServerName::try_from(name.to_owned());
        parsed.map_err(|_| SettingsError::ServerName(name.to_owned()))
    }
}
