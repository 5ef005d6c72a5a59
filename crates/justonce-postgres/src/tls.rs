//! TLS, or the lack of it.

use crate::address::{InvalidAddress, TlsMode};

/// What makes a connection speak TLS.
#[cfg(feature = "tls")]
pub(crate) type Connector = tokio_postgres_rustls::MakeRustlsConnect;
/// What makes a connection speak TLS: nothing does.
#[cfg(not(feature = "tls"))]
pub(crate) type Connector = tokio_postgres::NoTls;

/// The protocol that servers with direct TLS expect to be offered.
#[cfg(feature = "tls")]
const PROTOCOL: &[u8] = b"postgresql";

#[cfg(feature = "tls")]
pub(crate) fn connector(mode: &TlsMode) -> Result<Connector, InvalidAddress> {
    use crate::address::RootSource;

    let roots = match mode {
        // Not used: such connections are in clear.
        TlsMode::Off => justonce_net::TrustRoots::empty(),
        TlsMode::On(RootSource::System) => {
            let roots = justonce_net::TrustRoots::system();
            if roots.is_empty() {
                let why = "this machine trusts no authority: name yours with sslrootcert=FILE";
                return Err(InvalidAddress::new(why));
            }
            roots
        }
        TlsMode::On(RootSource::File(path)) => justonce_net::TrustRoots::from_file(path)
            .map_err(|why| InvalidAddress::new(format!("sslrootcert={}: {why}", path.display())))?,
    };
    let config = roots
        .client_config(PROTOCOL)
        .map_err(|why| InvalidAddress::new(format!("TLS cannot be set up: {why}")))?;
    Ok(Connector::new(config))
}

#[cfg(not(feature = "tls"))]
pub(crate) fn connector(mode: &TlsMode) -> Result<Connector, InvalidAddress> {
    match mode {
        TlsMode::Off => Ok(tokio_postgres::NoTls),
        TlsMode::On(_) => Err(InvalidAddress::new(justonce_net::TLS_NOT_BUILT_IN)),
    }
}

/// What to do about a certificate that was refused.
#[cfg(feature = "tls")]
pub(crate) fn advice(error: &tokio_postgres::Error) -> Option<&'static str> {
    Some(match justonce_net::certificate_refusal(error)? {
        justonce_net::CertificateRefusal::WrongName => {
            "The address must name the server as its certificate does"
        }
        _ => "Set sslrootcert=FILE in the address to the authority that signed it",
    })
}

#[cfg(not(feature = "tls"))]
pub(crate) const fn advice(_: &tokio_postgres::Error) -> Option<&'static str> {
    None
}
