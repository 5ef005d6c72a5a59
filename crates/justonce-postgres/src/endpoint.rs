//! How all connections to a database are made.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::config::{SslMode, SslNegotiation, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, Socket};

use crate::address::{InvalidAddress, TlsMode, split};
use crate::tls::{self, Connector};

/// How long making a connection may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After this long without traffic a connection is probed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// The pause between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How many probes may stay unanswered before a connection counts as dead.
const KEEPALIVE_RETRIES: u32 = 3;
/// How long sent data may stay unacknowledged before a connection counts as dead.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// The stream of a connection with TLS.
pub(crate) type Stream = <Connector as MakeTlsConnect<Socket>>::Stream;

/// A database, and how to connect to it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) config: Config,
    pub(crate) connector: Connector,
}

impl Endpoint {
    /// Parses an address, and reads the certificates that it names.
    pub(crate) fn of(address: &str) -> Result<Self, InvalidAddress> {
        let (rest, mode) = split(address)?;
        let config = configured(&rest).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            InvalidAddress::new(cause.unwrap_or_else(|| error.to_string()))
        })?;
        Self::with_tls(config, &mode)
    }

    fn with_tls(mut config: Config, mode: &TlsMode) -> Result<Self, InvalidAddress> {
        let direct = config.get_ssl_negotiation() == SslNegotiation::Direct;
        config.ssl_mode(match mode {
            TlsMode::Off if direct => {
                let why = "sslnegotiation=direct is for TLS: add sslmode=verify-full";
                return Err(InvalidAddress::new(why));
            }
            TlsMode::Off => SslMode::Disable,
            TlsMode::On(_) => SslMode::Require,
        });
        Ok(Self { config, connector: tls::connector(mode)? })
    }

    /// Connects. The timeout also ends connections that are accepted and then stay silent.
    pub(crate) async fn connect(&self) -> Result<(Client, Connection<Socket, Stream>), Error> {
        let each = self.config.get_connect_timeout().map_or(CONNECT_TIMEOUT, |each| *each);
        let hosts = u32::try_from(self.config.get_hosts().len()).unwrap_or(u32::MAX).max(1);
        let connecting = self.config.connect(self.connector.clone());
        let connected = timeout(each.saturating_mul(hosts), connecting).await;
        connected.unwrap_or_else(|_| Err(Error::__private_api_timeout()))
    }
}

/// The defaults of our connections; most of them can be overridden in the address.
fn configured(address: &str) -> Result<Config, Error> {
    let mut config: Config = address.parse()?;
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_application_name().is_none() {
        config.application_name("justonce");
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNACKNOWLEDGED);
    }
    config.keepalives_idle(KEEPALIVE_IDLE);
    config.keepalives_interval(KEEPALIVE_INTERVAL);
    config.keepalives_retries(KEEPALIVE_RETRIES);
    if config.get_hosts().len() > 1 {
        // Of several servers only the one that accepts writes is of use.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(address: &str) -> String {
        Endpoint::of(address).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn tls_is_off_or_insisted_on() {
        let plain = Endpoint::of("postgres://h/db").unwrap();
        assert_eq!(plain.config.get_ssl_mode(), SslMode::Disable);
        assert!(told("postgres://h?sslnegotiation=direct").contains("sslmode=verify-full"));
        assert!(told("postgres://h?sslcert=a.pem").contains("unknown option `sslcert`"));
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_that_was_not_built_in_is_refused() {
        for mode in ["require", "verify-ca", "verify-full"] {
            let error = told(&format!("postgres://u:secret@h?sslmode={mode}"));
            assert!(error.contains("the feature `tls`") && !error.contains("secret"), "{error}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn roots_that_cannot_be_read_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("roots.pem");
        let url = format!("postgres://u:secret@h?sslmode=require&sslrootcert={}", file.display());
        let missing = told(&url);
        std::fs::write(&file, "nothing of use").unwrap();
        let empty = told(&url);
        for error in [&missing, &empty] {
            assert!(error.contains("roots.pem") && !error.contains("secret"), "{error}");
        }
        assert!(empty.contains("no certificate"), "{empty}");
    }
}
