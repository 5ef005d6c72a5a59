//! Ranges of IP addresses: `10.0.0.0/8`, or a single address.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The bits before those of an IPv4 address that is written as an IPv6 address (`::ffff:10.0.0.1`).
const MAPPED_BITS: u8 = 96;

/// A range of IP addresses.
///
/// ```
/// use justonce_net::AddressRange;
///
/// // A network, or one address.
/// let network: AddressRange = "10.0.0.0/8".parse()?;
/// assert!(network.contains("10.1.2.3".parse()?));
/// let one: AddressRange = "2001:db8::1".parse()?;
/// assert!(!one.contains("2001:db8::2".parse()?));
///
/// // IPv4 addresses count however a socket writes them.
/// assert!(network.contains("::ffff:10.1.2.3".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressRange {
    /// The first address.
    base: IpAddr,
    /// How many leading bits all addresses share.
    bits: u8,
}

impl AddressRange {
    /// Parses a range.
    ///
    /// # Errors
    ///
    /// If it is no address with a prefix length, or the address has bits behind the prefix.
    pub fn parse(text: &str) -> Result<Self, AddressRangeError> {
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(bits)),
        };
        let address: IpAddr = address.parse().map_err(|_| AddressRangeError::Shape)?;
        let (most, mut base) = (width(address), address.to_canonical());
        let mut bits = bits.map_or(Some(most), prefix).ok_or(AddressRangeError::Shape)?;
        if bits > most {
            return Err(AddressRangeError::Bits(most));
        }
        if base != address {
            match bits.checked_sub(MAPPED_BITS) {
                Some(left) => bits = left,
                // The range holds more than IPv4 addresses.
                None => base = address,
            }
        }
        let range = Self { base: first(base, bits), bits };
        if range.base == base { Ok(range) } else { Err(AddressRangeError::Host(range)) }
    }

    /// Whether an address is in the range.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.base.is_ipv4() && first(address, self.bits) == self.base
    }

    /// Whether every address of its kind is in the range.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.bits == 0
    }
}

/// Digits only: `u8` would parse `+8` too.
fn prefix(text: &str) -> Option<u8> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

const fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The first address of the range with this many leading bits.
fn first(address: IpAddr, bits: u8) -> IpAddr {
    let behind = u32::from(width(address).saturating_sub(bits));
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(behind).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(behind).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bits == width(self.base) {
            return write!(f, "{}", self.base);
        }
        write!(f, "{}/{}", self.base, self.bits)
    }
}

impl FromStr for AddressRange {
    type Err = AddressRangeError;

    fn from_str(text: &str) -> Result<Self, AddressRangeError> {
        Self::parse(text)
    }
}

/// Why a range was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressRangeError {
    /// It is neither an address nor an address with a prefix length.
    Shape,
    /// The prefix is longer than an address of this kind, which has so many bits.
    Bits(u8),
    /// The address is inside this range, and not its first.
    Host(AddressRange),
}

impl fmt::Display for AddressRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape => f.write_str("expected an IP address or a network, as in \"10.0.0.0/8\""),
            Self::Bits(most) => write!(f, "such an address has {most} bits, and the prefix more"),
            Self::Host(range) => write!(f, "it is no first address of a network: {range} is"),
        }
    }
}

impl Error for AddressRangeError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(range: &str, address: &str) -> bool {
        AddressRange::parse(range).unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn ranges_hold_what_their_prefix_says() {
        for (range, address) in [
            ("10.0.0.0/8", "10.255.255.255"),
            ("10.0.0.0/8", "::ffff:10.0.0.1"),
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.6/31", "192.0.2.7"),
            ("0.0.0.0/0", "203.0.113.1"),
            ("::1", "::1"),
            ("2001:db8::/32", "2001:db8:ffff::1"),
            ("::/0", "2001:db8::1"),
            ("::ffff:10.0.0.0/104", "10.1.1.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
        ] {
            assert!(contains(range, address), "{range} {address}");
        }
        for (range, address) in [
            ("10.0.0.0/8", "11.0.0.0"),
            ("192.0.2.7", "192.0.2.8"),
            ("0.0.0.0/0", "2001:db8::1"),
            ("::/0", "203.0.113.1"),
            ("::1", "::2"),
            ("2001:db8::/32", "2001:db9::"),
        ] {
            assert!(!contains(range, address), "{range} {address}");
        }
    }

    #[test]
    fn wrong_ranges_say_what_is_wrong() {
        let table = [
            ("", AddressRangeError::Shape),
            ("10.0.0.0/", AddressRangeError::Shape),
            ("10.0.0.0/+8", AddressRangeError::Shape),
            ("10.0.0.0/8/8", AddressRangeError::Shape),
            ("10.0.0.0/256", AddressRangeError::Shape),
            ("10.0.0/8", AddressRangeError::Shape),
            ("[::1]", AddressRangeError::Shape),
            ("proxy.internal", AddressRangeError::Shape),
            ("10.0.0.0/33", AddressRangeError::Bits(32)),
            ("::/129", AddressRangeError::Bits(128)),
        ];
        for (text, error) in table {
            assert_eq!(AddressRange::parse(text), Err(error), "{text}");
        }
        let inside = AddressRange::parse("10.0.0.1/8").unwrap_err();
        assert!(inside.to_string().contains("10.0.0.0/8 is"), "{inside}");
    }

    #[test]
    fn it_is_written_as_it_is_read() {
        for text in ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::1", "0.0.0.0/0", "::/0"] {
            assert_eq!(AddressRange::parse(text).unwrap().to_string(), text);
        }
        let mapped = AddressRange::parse("::ffff:10.0.0.0/104").unwrap();
        assert_eq!(mapped.to_string(), "10.0.0.0/8");
    }
}
