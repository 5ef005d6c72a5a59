//! The address of an upstream: `http://host:port/base`, or `unix:/path`.

use std::fmt;
use std::path::Path;

use http::HeaderValue;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use justonce_net::{SocketAddress, UnixPathError};
use thiserror::Error;

/// The host of an upstream on a Unix socket, which has no name of its own.
const LOCAL: &str = "localhost";

/// The address of an upstream.
///
/// ```
/// use justonce_proxy::UpstreamAddress;
///
/// let address = UpstreamAddress::parse("http://127.0.0.1:9000")?;
/// assert_eq!((address.host(), address.port()), ("127.0.0.1", 9000));
///
/// // A base path is put in front of every path; https has its own port.
/// let below = UpstreamAddress::parse("https://api.example.org/v2/")?;
/// assert_eq!((below.base(), below.port(), below.is_tls()), ("/v2", 443, true));
///
/// // A Unix socket.
/// let local = UpstreamAddress::parse("unix:/run/payments.sock")?;
/// assert_eq!((local.host(), local.is_tls()), ("localhost", false));
/// # Ok::<(), justonce_proxy::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamAddress {
    authority: Authority,
    host: Box<str>,
    port: u16,
    base: Box<str>,
    tls: bool,
    unix: Option<Box<Path>>,
}

impl UpstreamAddress {
    /// Parses an address.
    ///
    /// # Errors
    ///
    /// If it is no `http://` or `https://` address of a host and no `unix:` path, or has
    /// credentials, a query or a fragment.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if let Some(read) = SocketAddress::unix(text) {
            return match read? {
                SocketAddress::Unix(path) => Ok(Self::local(&path)),
                SocketAddress::Tcp(_) => Err(AddressError::Shape),
            };
        }
        if text.contains('#') {
            return Err(AddressError::Fragment);
        }
        let uri: Uri = text.parse().map_err(|_| AddressError::Shape)?;
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(other) => return Err(AddressError::Scheme(other.as_str().into())),
            None => return Err(AddressError::Shape),
        };
        let authority = uri.authority().ok_or(AddressError::Shape)?.clone();
        if authority.as_str().contains('@') {
            return Err(AddressError::Credentials);
        }
        if uri.query().is_some() {
            return Err(AddressError::Query);
        }
        let port = match authority.port() {
            None if authority.as_str() == authority.host() && tls => 443,
            None if authority.as_str() == authority.host() => 80,
            Some(port) if port.as_u16() != 0 => port.as_u16(),
            _ => return Err(AddressError::Port),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(AddressError::Shape);
        }
        let base = uri.path().trim_end_matches('/');
        Ok(Self { host: host.into(), port, base: base.into(), tls, authority, unix: None })
    }

    fn local(path: &Path) -> Self {
        let (authority, unix) = (Authority::from_static(LOCAL), Some(path.into()));
        Self { authority, host: LOCAL.into(), port: 80, base: "".into(), tls: false, unix }
    }

    /// The path of the Unix socket, if it is one.
    #[must_use]
    pub fn unix_path(&self) -> Option<&Path> {
        self.unix.as_deref()
    }

    /// The host name or IP address, IPv6 without brackets; `localhost` for a Unix socket.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The prefix of every path; empty without one.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Whether connections use TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// The `Host` header for this address.
    pub(crate) fn host_header(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(self.authority.as_str()).ok()
    }

    /// The target of the request line for a path that the client requested.
    pub(crate) fn target(&self, requested: Option<&PathAndQuery>) -> Option<Uri> {
        let requested = requested.map_or("/", PathAndQuery::as_str);
        if self.base.is_empty() || !requested.starts_with('/') {
            return requested.parse().ok();
        }
        [&self.base, requested].concat().parse().ok()
    }
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.unix {
            return SocketAddress::Unix(path.to_path_buf()).fmt(f);
        }
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.base)
    }
}

impl std::str::FromStr for UpstreamAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text)
    }
}

/// Why an address was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It is not `http://host:port`.
    #[error("an upstream is written as in \"http://127.0.0.1:9000\" or \"unix:/run/shop.sock\"")]
    Shape,
    /// The path of the Unix socket is none.
    #[error("{0}")]
    Unix(#[from] UnixPathError),
    /// The scheme is not supported.
    #[error("{0:?} is not supported: use http or https")]
    Scheme(Box<str>),
    /// The port is no number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// It has credentials.
    #[error("an upstream's address carries no credentials")]
    Credentials,
    /// It has a query.
    #[error("an upstream's address carries no query")]
    Query,
    /// It has a fragment.
    #[error("an upstream's address carries no fragment")]
    Fragment,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> UpstreamAddress {
        UpstreamAddress::parse(text).unwrap()
    }

    #[test]
    fn addresses_are_read() {
        let table = [
            ("http://localhost", "localhost", 80, "", false),
            ("http://localhost/", "localhost", 80, "", false),
            ("https://api.example.org", "api.example.org", 443, "", true),
            ("http://[::1]:9000/a/b/", "::1", 9000, "/a/b", false),
            ("HTTP://10.0.0.1:1", "10.0.0.1", 1, "", false),
        ];
        for (text, host, port, base, tls) in table {
            let address = parsed(text);
            assert_eq!(
                (address.host(), address.port(), address.base(), address.is_tls()),
                (host, port, base, tls),
                "{text}"
            );
        }
    }

    #[test]
    fn wrong_addresses_say_what_is_wrong() {
        let table = [
            ("", AddressError::Shape),
            ("localhost:9000", AddressError::Shape),
            ("/just/a/path", AddressError::Shape),
            ("ftp://host", AddressError::Scheme("ftp".into())),
            ("http://host:0", AddressError::Port),
            ("http://host:70000", AddressError::Port),
            ("http://me:secret@host", AddressError::Credentials),
            ("http://host/?a=b", AddressError::Query),
            ("http://host/#a", AddressError::Fragment),
            ("unix:shop.sock", AddressError::Unix(UnixPathError::NotAbsolute)),
        ];
        for (text, error) in table {
            assert_eq!(UpstreamAddress::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn targets_are_joined() {
        let path: PathAndQuery = "/x?y=1".parse().unwrap();
        assert_eq!(parsed("http://h").target(Some(&path)).unwrap(), "/x?y=1");
        assert_eq!(parsed("http://h/v1/").target(Some(&path)).unwrap(), "/v1/x?y=1");
        assert_eq!(parsed("http://h/v1").target(None).unwrap(), "/v1/");
        let star: PathAndQuery = "*".parse().unwrap();
        assert_eq!(parsed("http://h/v1").target(Some(&star)).unwrap(), "*");
    }

    #[test]
    fn it_is_written_as_it_is_read() {
        for text in ["http://localhost:9000", "https://[::1]:8443/base", "unix:/run/a#b?c.sock"] {
            assert_eq!(parsed(text).to_string(), text);
            assert_eq!(text.parse(), Ok(parsed(text)));
        }
    }
}
