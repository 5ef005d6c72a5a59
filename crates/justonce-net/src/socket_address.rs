//! Addresses of sockets: an IP address and a port, or the path of a Unix socket.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What the address of a Unix socket begins with.
const UNIX: &str = "unix:";
/// The longest path that the kernel takes (`sun_path`), without the zero byte at its end.
pub const MAX_UNIX_PATH_BYTES: usize = 107;

/// Where a server listens: an IP address and a port, or a Unix socket.
///
/// ```
/// use justonce_net::SocketAddress;
///
/// let unix = SocketAddress::unix("unix:/run/justonce/http.sock").expect("a Unix socket")?;
/// assert_eq!(unix.to_string(), "unix:/run/justonce/http.sock");
/// let tcp = SocketAddress::Tcp("127.0.0.1:8080".parse()?);
/// assert_eq!(tcp.ip().map(|address| address.port()), Some(8080));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SocketAddress {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The absolute path of a Unix socket.
    Unix(PathBuf),
}

impl SocketAddress {
    /// Reads `unix:/path`; nothing if the text is the address of no Unix socket.
    pub fn unix(text: &str) -> Option<Result<Self, UnixPathError>> {
        let path = text.strip_prefix(UNIX)?;
        Some(unix_path(path).map(|path| Self::Unix(path.to_owned())))
    }

    /// The IP address and the port, if it has one.
    #[must_use]
    pub const fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for SocketAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// The path of a Unix socket, if it can be one.
fn unix_path(path: &str) -> Result<&Path, UnixPathError> {
    if !path.starts_with('/') {
        return Err(UnixPathError::NotAbsolute);
    }
    // They are shown in metrics and in the log.
    let is_odd = |c: char| c.is_control() || matches!(c, '"' | '\\');
    if path.ends_with('/') || path.contains(is_odd) {
        return Err(UnixPathError::NoFile);
    }
    if path.len() > MAX_UNIX_PATH_BYTES {
        return Err(UnixPathError::TooLong);
    }
    Ok(Path::new(path))
}

/// Why a path was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnixPathError {
    /// It does not begin with a slash.
    NotAbsolute,
    /// It ends with a slash, or contains a quote, a backslash or a control character.
    NoFile,
    /// It is longer than the kernel takes.
    TooLong,
}

impl fmt::Display for UnixPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAbsolute => f.write_str(
                "the path of a Unix socket begins with a slash, as in \"unix:/run/shop.sock\"",
            ),
            Self::NoFile => f.write_str(
                "the path of a Unix socket names a file, without quotes, backslashes and control \
                 characters",
            ),
            Self::TooLong => {
                write!(f, "the path of a Unix socket has at most {MAX_UNIX_PATH_BYTES} bytes")
            }
        }
    }
}

impl Error for UnixPathError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_sockets_are_read_and_written() {
        for text in ["127.0.0.1:80", "unix", "UNIX:/a", "http://unix:/a", "/run/a.sock"] {
            assert_eq!(SocketAddress::unix(text), None, "{text}");
        }
        let long = format!("unix:/{}", "x".repeat(MAX_UNIX_PATH_BYTES));
        for (text, why) in [
            ("unix:", UnixPathError::NotAbsolute),
            ("unix:run/a.sock", UnixPathError::NotAbsolute),
            ("unix:@abstract", UnixPathError::NotAbsolute),
            ("unix:/run/", UnixPathError::NoFile),
            ("unix:/run/a\0b", UnixPathError::NoFile),
            ("unix:/run/a\"b", UnixPathError::NoFile),
            (&long, UnixPathError::TooLong),
        ] {
            assert_eq!(SocketAddress::unix(text), Some(Err(why)), "{text}");
        }
        let longest = &long[..long.len() - 1];
        for text in ["unix:/run/a.sock", "unix:/a b/\u{e9}", longest] {
            let read = SocketAddress::unix(text).unwrap().unwrap();
            assert_eq!(read.to_string(), text);
            assert_eq!(read.ip(), None);
        }
    }
}
