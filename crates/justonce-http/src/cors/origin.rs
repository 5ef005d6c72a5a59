//! The origin of a web page.

use std::fmt;

/// The origin of a web page, as browsers send it in `Origin`: scheme, host, and the port unless it
/// is the usual one.
///
/// ```
/// use justonce_http::Origin;
///
/// let shop = Origin::parse("https://Shop.example.com:443")?;
/// assert_eq!(shop.as_str(), "https://shop.example.com");
/// # Ok::<(), justonce_http::OriginError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(Box<str>);

/// A text is not an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginError;

impl fmt::Display for OriginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an origin is a scheme, a host and perhaps a port, without a path: \
             \"https://shop.example.com\"",
        )
    }
}

impl std::error::Error for OriginError {}

impl Origin {
    /// Parses an origin. `null`, which pages without an origin send, is none: it would let in all
    /// of them.
    ///
    /// # Errors
    ///
    /// If it is anything but a scheme, a host and perhaps a port.
    pub fn parse(text: &str) -> Result<Self, OriginError> {
        let text = text.to_ascii_lowercase();
        let (scheme, place) = text.split_once("://").ok_or(OriginError)?;
        let is_scheme = |text: &str| {
            text.starts_with(|first: char| first.is_ascii_lowercase())
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        };
        let (host, port) = host_and_port(place).ok_or(OriginError)?;
        if !is_scheme(scheme) || !is_host(host) {
            return Err(OriginError);
        }
        let usual = match scheme {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        Ok(Self(match port {
            Some(port) if Some(port) != usual => format!("{scheme}://{host}:{port}").into(),
            _ => format!("{scheme}://{host}").into(),
        }))
    }

    /// The origin as browsers send it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn host_and_port(place: &str) -> Option<(&str, Option<u16>)> {
    match place.rsplit_once(':') {
        // The colons of an IPv6 address are between brackets.
        Some((host, port)) if !port.ends_with(']') => {
            let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            Some((host, Some(port.parse().ok().filter(|_| is_number)?)))
        }
        _ => Some((place, None)),
    }
}

fn is_host(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = address {
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    !host.is_empty() && host.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_written_as_browsers_send_them() {
        for (text, sent) in [
            ("https://shop.example.com", "https://shop.example.com"),
            ("HTTPS://Shop.Example.Com:443", "https://shop.example.com"),
            ("http://shop:80", "http://shop"),
            ("http://shop:443", "http://shop:443"),
            ("http://localhost:5173", "http://localhost:5173"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://[::1]", "http://[::1]"),
            ("capacitor://localhost", "capacitor://localhost"),
            ("chrome-extension://abcdef", "chrome-extension://abcdef"),
        ] {
            assert_eq!(Origin::parse(text).unwrap().as_str(), sent, "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "*",
            "null",
            "shop.example.com",
            "//shop",
            "https://",
            "https://shop/",
            "https://shop/path",
            "https://shop?a",
            "https://u:p@shop",
            "https://*.example.com",
            "https://shop:",
            "https://shop:+80",
            "https://shop:70000",
            "https://a b",
            "https://a,https://b",
            "1http://shop",
            "http://::1",
            "http://[x]",
        ] {
            assert_eq!(Origin::parse(text), Err(OriginError), "{text}");
        }
    }
}
