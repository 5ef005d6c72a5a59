//! One entry of a list of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest entry: an IPv6 address in brackets with a port has 47 characters.
const MAX_NODE_BYTES: usize = 64;

/// The address in an entry: an IP address, perhaps with a port, IPv6 perhaps in brackets. Names,
/// `unknown` and obfuscated identifiers are no addresses.
pub(super) fn address(entry: &[u8]) -> Option<IpAddr> {
    if entry.len() > MAX_NODE_BYTES {
        return None;
    }
    let text = std::str::from_utf8(entry).ok()?.trim_matches([' ', '\t']);
    let address = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
            address.parse::<Ipv6Addr>().ok().filter(|_| is_port)?.into()
        }
        None => match text.parse::<IpAddr>() {
            Ok(address) => address,
            Err(_) => {
                let (address, port) = text.split_once(':')?;
                address.parse::<Ipv4Addr>().ok().filter(|_| is_port(port))?.into()
            }
        },
    };
    Some(address.to_canonical())
}

/// A port, or an obfuscated one (RFC 7239, section 6.3).
fn is_port(text: &str) -> bool {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_obfuscated = |rest: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !rest.is_empty() && rest.bytes().all(fits)
    };
    (is_number && text.parse::<u16>().is_ok()) || text.strip_prefix('_').is_some_and(is_obfuscated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_ports() {
        for (entry, expected) in [
            ("203.0.113.9", "203.0.113.9"),
            ("203.0.113.9:1234", "203.0.113.9"),
            (" 203.0.113.9\t", "203.0.113.9"),
            ("2001:db8::9", "2001:db8::9"),
            ("[2001:db8::9]", "2001:db8::9"),
            ("[2001:db8::9]:65535", "2001:db8::9"),
            ("[2001:db8::9]:_hidden", "2001:db8::9"),
            ("::ffff:203.0.113.9", "203.0.113.9"),
            ("[::ffff:203.0.113.9]:1", "203.0.113.9"),
        ] {
            assert_eq!(address(entry.as_bytes()), expected.parse().ok(), "{entry}");
        }
    }

    #[test]
    fn everything_else_is_no_address() {
        for entry in [
            "",
            "unknown",
            "_hidden",
            "_gazonk:_x",
            "client.example",
            "203.0.113",
            "203.0.113.9:",
            "203.0.113.9:65536",
            "203.0.113.9:+1",
            "203.0.113.9:_",
            "203.0.113.9 1",
            "203.0.113.9/8",
            "203.0.113.010",
            "0xcb.0.113.9",
            "3405803785",
            "[2001:db8::9",
            "[2001:db8::9]x",
            "[203.0.113.9]",
            "fe80::1%eth0",
            "\"203.0.113.9\"",
            "unix:",
        ] {
            assert_eq!(address(entry.as_bytes()), None, "{entry}");
        }
        assert_eq!(address(b"\xff\xfe"), None);
        assert_eq!(address(&[b'1'; 100]), None);
    }
}
