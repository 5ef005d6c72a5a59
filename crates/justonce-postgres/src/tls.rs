//! TLS, or the lack of it.

#[cfg(feature = "tls")]
pub(crate) use spoken::{advice, connector};
#[cfg(not(feature = "tls"))]
pub(crate) use unspoken::{advice, connector};

/// What makes a connection speak TLS.
#[cfg(feature = "tls")]
pub(crate) type Connector = tokio_postgres_rustls::MakeRustlsConnect;
/// What makes a connection speak TLS: nothing does.
#[cfg(not(feature = "tls"))]
pub(crate) type Connector = tokio_postgres::NoTls;

#[cfg(feature = "tls")]
mod spoken {
    use std::error::Error;
    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::{CertificateError, ClientConfig, RootCertStore};

    use super::Connector;
    use crate::address::{InvalidAddress, Roots, Speech};

    /// What servers that take TLS at once want to hear first.
    const PROTOCOL: &[u8] = b"postgresql";

    pub(crate) fn connector(speech: &Speech) -> Result<Connector, InvalidAddress> {
        let roots = match speech {
            // Never asked, and it would trust nobody.
            Speech::Plain => RootCertStore::empty(),
            Speech::Tls(Roots::Machine) => of_machine()?,
            Speech::Tls(Roots::File(path)) => of_file(path)?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|why| InvalidAddress::new(format!("TLS cannot be spoken: {why}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Connector::new(config))
    }

    fn of_machine() -> Result<RootCertStore, InvalidAddress> {
        let mut roots = RootCertStore::empty();
        // Single ones that cannot be read are no reason to stop: the one that is needed is missed
        // with a clear error when connecting.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let why = "this machine trusts no authority: name yours with sslrootcert=FILE";
            return Err(InvalidAddress::new(why));
        }
        Ok(roots)
    }

    fn of_file(path: &Path) -> Result<RootCertStore, InvalidAddress> {
        let wrong = |why: &dyn std::fmt::Display| {
            InvalidAddress::new(format!("sslrootcert={}: {why}", path.display()))
        };
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_file_iter(path).map_err(|why| wrong(&why))? {
            let root = root.map_err(|why| wrong(&why))?;
            roots.add(root).map_err(|why| wrong(&why))?;
        }
        if roots.is_empty() {
            return Err(wrong(&"there is no certificate in it"));
        }
        Ok(roots)
    }

    /// What to do about a certificate that was refused.
    pub(crate) fn advice(error: &tokio_postgres::Error) -> Option<&'static str> {
        let cause = error.source()?.downcast_ref::<io::Error>()?.get_ref()?;
        match cause.downcast_ref::<rustls::Error>()? {
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => Some("The address must name the server as its certificate does"),
            rustls::Error::InvalidCertificate(_) => {
                Some("Set sslrootcert=FILE in the address to the authority that signed it")
            }
            _ => None,
        }
    }
}

#[cfg(not(feature = "tls"))]
mod unspoken {
    use super::Connector;
    use crate::address::{InvalidAddress, Roots, Speech};

    pub(crate) fn connector(speech: &Speech) -> Result<Connector, InvalidAddress> {
        match speech {
            Speech::Plain => Ok(tokio_postgres::NoTls),
            Speech::Tls(Roots::Machine | Roots::File(_)) => Err(InvalidAddress::new(
                "it wants TLS, and this program was built without: enable the feature `tls`",
            )),
        }
    }

    pub(crate) const fn advice(_: &tokio_postgres::Error) -> Option<&'static str> {
        None
    }
}
