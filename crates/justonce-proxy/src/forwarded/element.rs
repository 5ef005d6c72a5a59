//! `Forwarded` (RFC 7239), read.

use std::borrow::Cow;

/// What one proxy says about a request as it received it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Element<'h> {
    /// Who connected to it.
    pub(super) node: Option<Cow<'h, [u8]>>,
    pub(super) scheme: Option<Cow<'h, [u8]>>,
    pub(super) host: Option<Cow<'h, [u8]>>,
}

/// A line is not written as the specification says. Then no element of it can be told from what a
/// client wrote: a quote that the client left open swallows what the proxy added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Hands over the elements of one line, in order.
pub(super) fn elements<'h>(
    line: &'h [u8],
    mut each: impl FnMut(Element<'h>),
) -> Result<(), Malformed> {
    let mut text = Text(line);
    loop {
        text.skip_space();
        let (element, is_empty) = element(&mut text)?;
        if !is_empty {
            each(element);
        }
        match text.next() {
            None => return Ok(()),
            Some(b',') => {}
            Some(_) => return Err(Malformed),
        }
    }
}

/// Pairs up to a comma or the end. Spaces around semicolons are not in the specification, but some
/// proxies write them.
fn element<'h>(text: &mut Text<'h>) -> Result<(Element<'h>, bool), Malformed> {
    let mut element = Element::default();
    let mut is_empty = true;
    loop {
        text.skip_space();
        if !matches!(text.peek(), None | Some(b',' | b';')) {
            let name = text.token()?;
            if text.next() != Some(b'=') {
                return Err(Malformed);
            }
            let value = text.value()?;
            is_empty = false;
            let place = match name.to_ascii_lowercase().as_slice() {
                b"for" => &mut element.node,
                b"proto" => &mut element.scheme,
                b"host" => &mut element.host,
                _ => &mut None,
            };
            if place.replace(value).is_some() {
                return Err(Malformed);
            }
        }
        text.skip_space();
        if text.peek() != Some(b';') {
            return Ok((element, is_empty));
        }
        text.next();
    }
}

/// What is left of a line.
struct Text<'h>(&'h [u8]);

impl<'h> Text<'h> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.next();
        }
    }

    fn token(&mut self) -> Result<&'h [u8], Malformed> {
        let length = self.0.iter().take_while(|byte| is_token(**byte)).count();
        if length == 0 {
            return Err(Malformed);
        }
        let (token, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(token)
    }

    /// A token or a quoted string. IPv6 addresses and hosts with ports must be quoted, and some
    /// proxies do not: their characters are taken too.
    fn value(&mut self) -> Result<Cow<'h, [u8]>, Malformed> {
        if self.peek() == Some(b'"') {
            self.next();
            return self.quoted();
        }
        let fits = |byte: u8| is_token(byte) || b":[]".contains(&byte);
        let length = self.0.iter().take_while(|byte| fits(**byte)).count();
        let (value, rest) = self.0.split_at(length);
        self.0 = rest;
        if value.is_empty() { Err(Malformed) } else { Ok(Cow::Borrowed(value)) }
    }

    /// The rest of a quoted string.
    fn quoted(&mut self) -> Result<Cow<'h, [u8]>, Malformed> {
        let end = self.0.iter().position(|byte| matches!(byte, b'"' | b'\\'));
        let (plain, rest) = self.0.split_at(end.ok_or(Malformed)?);
        self.0 = rest;
        if self.next() == Some(b'"') {
            return Ok(Cow::Borrowed(plain));
        }
        let mut value = plain.to_vec();
        value.push(self.next().ok_or(Malformed)?);
        loop {
            match self.next().ok_or(Malformed)? {
                b'"' => return Ok(Cow::Owned(value)),
                b'\\' => value.push(self.next().ok_or(Malformed)?),
                byte => value.push(byte),
            }
        }
    }
}

/// RFC 9110, section 5.6.2.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The elements of a line, as texts.
    fn read(line: &str) -> Option<Vec<[Option<String>; 3]>> {
        let mut found = Vec::new();
        let text = |part: &Option<Cow<'_, [u8]>>| {
            part.as_ref().map(|part| String::from_utf8_lossy(part).into_owned())
        };
        let each = |element: Element<'_>| {
            found.push([text(&element.node), text(&element.scheme), text(&element.host)]);
        };
        elements(line.as_bytes(), each).ok()?;
        Some(found)
    }

    fn nodes(line: &str) -> Option<Vec<String>> {
        read(line)
            .map(|found| found.into_iter().map(|[node, ..]| node.unwrap_or_default()).collect())
    }

    #[test]
    fn the_examples_of_the_specification_are_read() {
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(nodes("for=\"_gazonk\"").unwrap(), ["_gazonk"]);
        assert_eq!(
            nodes("For=\"[2001:db8:cafe::17]:4711\"").unwrap(),
            ["[2001:db8:cafe::17]:4711"]
        );
        assert_eq!(
            read("for=192.0.2.60;proto=http;by=203.0.113.43").unwrap(),
            [[told("192.0.2.60"), told("http"), None]]
        );
        assert_eq!(
            nodes("for=192.0.2.43, for=198.51.100.17").unwrap(),
            ["192.0.2.43", "198.51.100.17"]
        );
        assert_eq!(
            read("for=12.34.56.78;host=example.com;proto=https, for=23.45.67.89").unwrap(),
            [
                [told("12.34.56.78"), told("https"), told("example.com")],
                [told("23.45.67.89"), None, None]
            ]
        );
    }

    #[test]
    fn what_proxies_write_otherwise_is_read_too() {
        assert_eq!(
            nodes(" for=1.2.3.4 ; proto=https ,, for=[::1]:5;host=a:80,").unwrap(),
            ["1.2.3.4", "[::1]:5"]
        );
        assert_eq!(nodes("host=\"a\\\"b\\\\,c;d\";for=\"1.2.3.4\"").unwrap(), ["1.2.3.4"]);
        assert_eq!(nodes("").unwrap(), [""; 0]);
        assert_eq!(nodes(",,;,").unwrap(), [""; 0]);
        assert_eq!(nodes("secret=x").unwrap(), [""]);
    }

    #[test]
    fn a_quote_that_a_client_left_open_spoils_the_line() {
        for line in [
            "for=\", for=1.2.3.4",
            "for=\", for=\"[2001:db8::1]\"",
            "for=6.6.6.6;host=\"x, for=1.2.3.4;host=\"a:80\"",
            "for=\"\\\", for=1.2.3.4",
            "for=\"\\",
            "\"for=1.2.3.4",
        ] {
            assert_eq!(nodes(line), None, "{line}");
        }
    }

    #[test]
    fn malformed_lines_are_told() {
        for line in [
            "for",
            "for=",
            "=1.2.3.4",
            "for = 1.2.3.4",
            "for=1.2.3.4 for=2.3.4.5",
            "for=a=b",
            "for=1.2.3.4;for=2.3.4.5",
            "for=\"1.2.3.4\"x",
            "for=1.2.3.4/8",
            "for=(x)",
            "for=a\u{e4}",
        ] {
            assert_eq!(nodes(line), None, "{line}");
        }
    }
}
