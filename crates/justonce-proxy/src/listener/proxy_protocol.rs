//! The PROXY protocol, versions 1 and 2: a proxy that only copies bytes says at the beginning of a
//! connection whose bytes they are.
//!
//! Exactly the header is read, and not a byte of what follows: that may be a TLS handshake.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};

/// What a header of version 2 begins with.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// What a header of version 1 begins with.
const V1: &[u8] = b"PROXY ";
/// The longest header of version 1, with its line end.
const MAX_V1_BYTES: usize = 107;
/// The most that a header of version 2 may have behind its fixed part. Proxies send a few hundred
/// bytes: addresses, the name that was asked for, what is known of a certificate.
const MAX_V2_BYTES: u16 = 4096;
/// The type of the part that tells whether the client uses TLS.
const TLS_PART: u8 = 0x20;

/// Who is at the other end of the connection that a proxy hands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A client, and whether it uses TLS, if the proxy says so.
    Client(SocketAddr, Option<bool>),
    /// The proxy itself: it looks whether we are alive.
    Proxy,
    /// Somebody without an IP address.
    Unknown,
}

/// Why a connection is refused.
#[derive(Debug, Error)]
pub(super) enum BadHeader {
    #[error("the connection ended inside the header")]
    CutOff(#[source] io::Error),
    #[error("the connection does not begin with a PROXY protocol header")]
    Missing,
    #[error("the header is longer than {MAX_V2_BYTES} bytes")]
    TooLong,
    #[error("the header is malformed")]
    Malformed,
}

/// Reads the header of a connection.
pub(super) async fn read<T: AsyncRead + Unpin>(stream: &mut T) -> Result<Source, BadHeader> {
    let mut start = [0; SIGNATURE.len()];
    let (first, rest) = start.split_at_mut(V1.len());
    stream.read_exact(first).await.map_err(BadHeader::CutOff)?;
    if !SIGNATURE.starts_with(first) && *first != *V1 {
        // Something that is no header may end here, and must not be waited for.
        return Err(BadHeader::Missing);
    }
    stream.read_exact(rest).await.map_err(BadHeader::CutOff)?;
    if start == SIGNATURE {
        return read_v2(stream).await;
    }
    if !start.starts_with(V1) {
        return Err(BadHeader::Missing);
    }
    // Byte by byte: it is not known where the line ends.
    let mut line = start.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() >= MAX_V1_BYTES {
            return Err(BadHeader::Malformed);
        }
        line.push(stream.read_u8().await.map_err(BadHeader::CutOff)?);
    }
    v1(&line).ok_or(BadHeader::Malformed)
}

async fn read_v2<T: AsyncRead + Unpin>(stream: &mut T) -> Result<Source, BadHeader> {
    let mut fixed = [0; 4];
    stream.read_exact(&mut fixed).await.map_err(BadHeader::CutOff)?;
    let [command, family, high, low] = fixed;
    let length = u16::from_be_bytes([high, low]);
    if length > MAX_V2_BYTES {
        return Err(BadHeader::TooLong);
    }
    let mut rest = vec![0; usize::from(length)];
    stream.read_exact(&mut rest).await.map_err(BadHeader::CutOff)?;
    v2(command, family, &rest).ok_or(BadHeader::Malformed)
}

/// A whole line of version 1.
fn v1(line: &[u8]) -> Option<Source> {
    let text = std::str::from_utf8(line.strip_suffix(b"\r\n")?).ok()?;
    let mut fields = text.strip_prefix("PROXY ")?.split(' ');
    let is_ipv4 = match fields.next()? {
        "TCP4" => true,
        "TCP6" => false,
        // The rest of the line does not count.
        "UNKNOWN" => return Some(Source::Unknown),
        _ => return None,
    };
    let mut address = || {
        let address: IpAddr = fields.next()?.parse().ok()?;
        (address.is_ipv4() == is_ipv4).then_some(address)
    };
    let (source, _) = (address()?, address()?);
    let mut port = || {
        let digits = fields.next()?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u16>().ok().filter(|_| is_number)
    };
    let (port, _) = (port()?, port()?);
    fields.next().is_none().then(|| Source::Client(SocketAddr::new(source, port), None))
}

/// What follows the signature of version 2.
fn v2(command: u8, family: u8, rest: &[u8]) -> Option<Source> {
    match command {
        0x20 => return Some(Source::Proxy),
        0x21 => {}
        _ => return None,
    }
    let (source, parts) = match family {
        0x11 => {
            let (addresses, parts) = rest.split_first_chunk::<12>()?;
            let [a, b, c, d, _, _, _, _, high, low, _, _] = *addresses;
            let port = u16::from_be_bytes([high, low]);
            (SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port), parts)
        }
        0x21 => {
            let (address, rest) = rest.split_first_chunk::<16>()?;
            let (_, rest) = rest.split_first_chunk::<16>()?;
            let ([high, low, _, _], parts) = rest.split_first_chunk::<4>()?;
            let port = u16::from_be_bytes([*high, *low]);
            (SocketAddr::new(Ipv6Addr::from(*address).into(), port), parts)
        }
        // Of no family, datagrams, local sockets: such a client has no address for us.
        0x00 | 0x12 | 0x22 | 0x31 | 0x32 => return Some(Source::Unknown),
        _ => return None,
    };
    Some(Source::Client(source, tls(parts)?))
}

/// Whether the client uses TLS, if that is told; nothing for malformed parts.
fn tls(mut parts: &[u8]) -> Option<Option<bool>> {
    let mut told = None;
    while !parts.is_empty() {
        let ([kind, high, low], rest) = parts.split_first_chunk::<3>()?;
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, rest) = rest.split_at_checked(length)?;
        if *kind == TLS_PART {
            told = Some(value.first()? & 1 == 1);
        }
        parts = rest;
    }
    Some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of a connection, and what is left of it.
    async fn read_of(mut bytes: &[u8]) -> (Result<Source, String>, Vec<u8>) {
        let read = read(&mut bytes).await;
        (read.map_err(|error| error.to_string()), bytes.to_vec())
    }

    fn client(address: &str, tls: Option<bool>) -> Result<Source, String> {
        Ok(Source::Client(address.parse().unwrap(), tls))
    }

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    const IPV4: [u8; 12] = [203, 0, 113, 9, 10, 0, 0, 1, 0x12, 0x34, 0, 80];

    fn ipv6() -> Vec<u8> {
        let source: Ipv6Addr = "2001:db8::9".parse().unwrap();
        [&source.octets()[..], &[0; 16], &[0x12, 0x34, 0, 80]].concat()
    }

    #[tokio::test]
    async fn lines_are_read_and_nothing_behind_them() {
        for (line, source) in [
            ("TCP4 203.0.113.9 10.0.0.1 4660 80", client("203.0.113.9:4660", None)),
            ("TCP6 2001:db8::9 ::1 4660 80", client("[2001:db8::9]:4660", None)),
            ("UNKNOWN", Ok(Source::Unknown)),
            ("UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535", Ok(Source::Unknown)),
        ] {
            let bytes = format!("PROXY {line}\r\nGET / HTTP/1.1\r\n");
            let (read, left) = read_of(bytes.as_bytes()).await;
            assert_eq!((read, &left[..]), (source, &b"GET / HTTP/1.1\r\n"[..]), "{line}");
        }
    }

    #[tokio::test]
    async fn malformed_lines_are_refused() {
        for line in [
            "TCP4 203.0.113.9 10.0.0.1 4660",
            "TCP4 203.0.113.9 10.0.0.1 4660 80 1",
            "TCP4 203.0.113.9 10.0.0.1 4660  80",
            "TCP4 203.0.113.9 10.0.0.1 65536 80",
            "TCP4 203.0.113.9 10.0.0.1 +1 80",
            "TCP4 2001:db8::9 ::1 4660 80",
            "TCP6 203.0.113.9 10.0.0.1 4660 80",
            "TCP5 203.0.113.9 10.0.0.1 4660 80",
            "tcp4 203.0.113.9 10.0.0.1 4660 80",
            "TCP4 203.0.113.9 10.0.0.1 4660 80\n",
            "TCP4 client.example 10.0.0.1 4660 80",
        ] {
            let (read, _) = read_of(format!("PROXY {line}\r\n").as_bytes()).await;
            assert_eq!(read, Err("the header is malformed".to_owned()), "{line:?}");
        }
        let endless = format!("PROXY UNKNOWN {}", "x".repeat(1000));
        let (read, left) = read_of(endless.as_bytes()).await;
        assert_eq!(read, Err("the header is malformed".to_owned()));
        assert_eq!(left.len(), endless.len() - MAX_V1_BYTES);
    }

    #[tokio::test]
    async fn binary_headers_are_read_and_nothing_behind_them() {
        let part = |kind: u8, value: &[u8]| {
            [&[kind, 0, u8::try_from(value.len()).unwrap()], value].concat()
        };
        let with = |parts: &[u8]| header(0x21, 0x11, &[&IPV4, parts].concat());
        for (bytes, source) in [
            (with(&[]), client("203.0.113.9:4660", None)),
            (header(0x21, 0x21, &ipv6()), client("[2001:db8::9]:4660", None)),
            (with(&part(TLS_PART, &[7, 0, 0, 0, 0])), client("203.0.113.9:4660", Some(true))),
            (with(&part(TLS_PART, &[0, 0, 0, 0, 1])), client("203.0.113.9:4660", Some(false))),
            (with(&part(0x02, b"shop.example")), client("203.0.113.9:4660", None)),
            (header(0x20, 0x00, &[]), Ok(Source::Proxy)),
            (header(0x20, 0x11, &IPV4), Ok(Source::Proxy)),
            (header(0x21, 0x00, b"anything"), Ok(Source::Unknown)),
            (header(0x21, 0x31, &[0; 216]), Ok(Source::Unknown)),
        ] {
            let (read, left) = read_of(&[&bytes[..], b"\x16\x03"].concat()).await;
            assert_eq!((read, &left[..]), (source, &b"\x16\x03"[..]), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn malformed_binary_headers_are_refused() {
        for bytes in [
            header(0x11, 0x11, &IPV4),
            header(0x22, 0x11, &IPV4),
            header(0x21, 0x41, &IPV4),
            header(0x21, 0x11, &IPV4[..11]),
            header(0x21, 0x21, &IPV4),
            header(0x21, 0x11, &[&IPV4[..], &[TLS_PART, 0]].concat()),
            header(0x21, 0x11, &[&IPV4[..], &[TLS_PART, 0, 9, 1]].concat()),
            header(0x21, 0x11, &[&IPV4[..], &[TLS_PART, 0, 0]].concat()),
        ] {
            let (read, _) = read_of(&bytes).await;
            assert_eq!(read, Err("the header is malformed".to_owned()), "{bytes:?}");
        }
        let long = header(0x20, 0x00, &vec![0; usize::from(MAX_V2_BYTES) + 1]);
        assert_eq!(read_of(&long).await.0, Err("the header is longer than 4096 bytes".to_owned()));
        let longest = header(0x20, 0x00, &vec![0; usize::from(MAX_V2_BYTES)]);
        assert_eq!(read_of(&longest).await.0, Ok(Source::Proxy));
    }

    #[tokio::test]
    async fn what_is_no_header_is_told_at_once() {
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03\x01\x02\x00\x01", b"PROXI TCP4 a"] {
            let (read, _) = read_of(bytes).await;
            assert!(read.unwrap_err().contains("does not begin with"), "{bytes:?}");
        }
        for bytes in [&b""[..], b"PROX", b"PROXY TCP4", b"PROXY TCP4 1.2.3.4", &SIGNATURE] {
            let (read, _) = read_of(bytes).await;
            assert!(read.unwrap_err().contains("ended inside"), "{bytes:?}");
        }
        let cut = header(0x21, 0x11, &IPV4);
        for length in SIGNATURE.len()..cut.len() {
            let (read, _) = read_of(&cut[..length]).await;
            assert!(read.unwrap_err().contains("ended inside"), "{length}");
        }
    }
}
