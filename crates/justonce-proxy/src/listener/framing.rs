//! Refuses HTTP/1 requests whose framing is ambiguous (request smuggling).
//!
//! The HTTP/1 parser accepts some of what the specification lets a server accept: a head with both
//! `Content-Length` and `Transfer-Encoding`, other codings before `chunked`, lines that end in a
//! bare line feed. A gateway must not: its upstream may read such a request differently.
//!
//! So the bytes are checked on their way to the parser, just far enough to know where heads begin
//! and end. In a line that is not acceptable the line feed is replaced by a zero byte. The parser
//! then handles it as any malformed request: 400, and the connection is closed.

/// How much of a line is kept when it arrives in pieces: enough for the names and numbers that
/// matter.
const LINE_BYTES: usize = 64;

/// Checks the bytes of one HTTP/1 connection.
#[derive(Debug)]
pub(super) struct FramingCheck {
    state: State,
    head: Head,
    line: Line,
    // First lines that have ended.
    begun: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Body(u64),
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    // After an upgrade or a refused request.
    Off,
}

#[derive(Clone, Copy, Debug, Default)]
struct Head {
    begun: bool,
    length: Option<u64>,
    chunked: bool,
    upgrade: bool,
    // Only GET requests can be upgrades; after others a body follows.
    get: bool,
}

/// The beginning of a line that arrives in pieces.
#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    // Whether it was longer than what is kept.
    cut: bool,
    last: Option<u8>,
}

/// A line is not acceptable.
#[derive(Debug)]
struct Ambiguous;

impl FramingCheck {
    pub(super) fn new() -> Self {
        Self { state: State::Head, head: Head::default(), line: Line::default(), begun: 0 }
    }

    /// For connections that are not HTTP/1.
    pub(super) fn off() -> Self {
        Self { state: State::Off, ..Self::new() }
    }

    /// Whether the head of a request has begun and not ended.
    pub(super) fn is_in_head(&self) -> bool {
        self.state == State::Head && (self.head.begun || !self.line.is_empty())
    }

    /// How many heads have begun.
    pub(super) fn heads(&self) -> u64 {
        let is_in_first_line =
            self.state == State::Head && !self.head.begun && !self.line.is_empty();
        self.begun + u64::from(is_in_first_line)
    }

    /// Checks more bytes, and makes them malformed if they are ambiguous. Returns whether a head
    /// was made malformed.
    pub(super) fn check(&mut self, mut bytes: &mut [u8]) -> bool {
        while !bytes.is_empty() {
            bytes = match self.state {
                State::Off => return false,
                State::Body(left) => self.skip(bytes, left, State::Body, State::Head),
                State::ChunkData(left) => self.skip(bytes, left, State::ChunkData, State::ChunkEnd),
                State::Head | State::ChunkSize | State::ChunkEnd | State::Trailers => {
                    let Some(at) = bytes.iter().position(|byte| *byte == b'\n') else {
                        self.line.keep(bytes);
                        return false;
                    };
                    let (line, rest) = bytes.split_at_mut(at);
                    let Some((end, rest)) = rest.split_first_mut() else { return false };
                    if self.end_line(line).is_err() {
                        *end = 0;
                        let is_head = self.state == State::Head;
                        self.begun += u64::from(is_head && !self.head.begun);
                        self.state = State::Off;
                        return is_head;
                    }
                    rest
                }
            };
        }
        false
    }

    fn skip<'a>(
        &mut self,
        bytes: &'a mut [u8],
        left: u64,
        more: fn(u64) -> State,
        then: State,
    ) -> &'a mut [u8] {
        let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let left = left - skipped as u64;
        self.state = if left == 0 { then } else { more(left) };
        bytes.get_mut(skipped..).unwrap_or_default()
    }

    fn end_line(&mut self, end: &[u8]) -> Result<(), Ambiguous> {
        if self.line.is_empty() {
            return self.check_line(end, false);
        }
        self.line.keep(end);
        let mut line = std::mem::take(&mut self.line);
        if line.cut {
            // The carriage return was not kept.
            let last = line.last.unwrap_or_default();
            line.bytes.push(last);
        }
        let checked = self.check_line(&line.bytes, line.cut);
        // The allocation is reused for the next line.
        line.bytes.clear();
        self.line = Line { bytes: line.bytes, cut: false, last: None };
        checked
    }

    /// One line without its line feed.
    fn check_line(&mut self, line: &[u8], cut: bool) -> Result<(), Ambiguous> {
        let line = line.strip_suffix(b"\r").ok_or(Ambiguous)?;
        match self.state {
            State::Head if line.is_empty() && self.head.begun => self.end_head(),
            // Empty lines before a request are skipped.
            State::Head if line.is_empty() => {}
            State::Head if !self.head.begun => {
                self.head.begun = true;
                self.begun += 1;
                self.head.get = line.starts_with(b"GET ");
            }
            State::Head => self.check_header(line, cut)?,
            State::ChunkSize => {
                let size = chunk_size(line, cut).ok_or(Ambiguous)?;
                self.state = if size == 0 { State::Trailers } else { State::ChunkData(size) };
            }
            State::ChunkEnd if line.is_empty() => self.state = State::ChunkSize,
            State::ChunkEnd => return Err(Ambiguous),
            State::Trailers if line.is_empty() => self.state = State::Head,
            _ => {}
        }
        Ok(())
    }

    fn check_header(&mut self, line: &[u8], cut: bool) -> Result<(), Ambiguous> {
        // Comparing the length of the name first rules out most headers.
        let name_is = |name: &[u8]| {
            line.get(name.len()) == Some(&b':')
                && line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
        };
        let value = |name: &[u8]| line.get(name.len() + 1..).unwrap_or_default().trim_ascii();
        if name_is(b"content-length") {
            let length = number(value(b"content-length")).filter(|_| !cut).ok_or(Ambiguous)?;
            if self.head.chunked || self.head.length.is_some_and(|said| said != length) {
                return Err(Ambiguous);
            }
            self.head.length = Some(length);
        } else if name_is(b"transfer-encoding") {
            let chunked = value(b"transfer-encoding").eq_ignore_ascii_case(b"chunked");
            if !chunked || cut || self.head.chunked || self.head.length.is_some() {
                return Err(Ambiguous);
            }
            self.head.chunked = true;
        } else if name_is(b"upgrade") {
            self.head.upgrade = true;
        }
        Ok(())
    }

    fn end_head(&mut self) {
        let head = std::mem::take(&mut self.head);
        self.state = match head {
            // What follows may be another protocol. If it is not, the connection is closed after
            // the response.
            Head { upgrade: true, get: true, .. } => State::Off,
            Head { chunked: true, .. } => State::ChunkSize,
            Head { length: Some(length @ 1..), .. } => State::Body(length),
            Head { .. } => State::Head,
        };
    }
}

impl Line {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn keep(&mut self, bytes: &[u8]) {
        let free = LINE_BYTES.saturating_sub(self.bytes.len());
        let kept = bytes.get(..free.min(bytes.len())).unwrap_or_default();
        self.bytes.extend_from_slice(kept);
        self.cut |= kept.len() < bytes.len();
        self.last = bytes.last().copied().or(self.last);
    }
}

/// Digits, and nothing else.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Hexadecimal digits, perhaps an extension after a semicolon.
fn chunk_size(line: &[u8], cut: bool) -> Option<u64> {
    let mut parts = line.splitn(2, |byte| *byte == b';');
    let digits = parts.next()?.trim_ascii_end();
    let extended = parts.next().is_some();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) || (cut && !extended) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether bytes pass unchanged, whole and byte by byte.
    fn passes(text: &str) -> bool {
        let mut whole = text.as_bytes().to_vec();
        FramingCheck::new().check(&mut whole);
        let mut check = FramingCheck::new();
        let mut single = text.as_bytes().to_vec();
        for byte in single.chunks_mut(1) {
            check.check(byte);
        }
        assert_eq!(whole, single, "{text:?}");
        whole == text.as_bytes()
    }

    #[test]
    fn plain_requests_pass() {
        for text in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n\n\n\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 3\r\nContent-Length:3\r\n\r\nabc",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
             3;x=y\r\na\nb\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "GET /ws HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\n\n\nanything\n",
        ] {
            assert!(passes(text), "{text:?}");
        }
        let long = format!("GET /{0} HTTP/1.1\r\nCookie: {0}\r\n\r\n", "x".repeat(1_000));
        assert!(passes(&long));
    }

    #[test]
    fn ambiguous_requests_become_malformed() {
        for head in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            "TRANSFER-ENCODING: chunked\r\nX: y\r\ncontent-length: 3\r\n\r\n",
            "Content-Length: 3\r\nContent-Length: 4\r\n\r\n",
            "Content-Length: +3\r\n\r\n",
            "Content-Length: 3, 3\r\n\r\n",
            "Content-Length: 99999999999999999999999\r\n\r\n",
            "Content-Length:\r\n\r\n",
            "Transfer-Encoding: gzip, chunked\r\n\r\n",
            "Transfer-Encoding: identity\r\n\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "X: y\n\r\n",
            "X: y\r\n\n",
            "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\na",
            "Upgrade: x\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
        ] {
            assert!(!passes(&format!("POST / HTTP/1.1\r\n{head}")), "{head:?}");
        }
        assert!(!passes("GET / HTTP/1.1\nHost: a\n\n"));
        let padded = format!("POST / HTTP/1.1\r\nContent-Length: {}3\r\n\r\n", " ".repeat(64));
        let mut check = FramingCheck::new();
        let mut bytes = padded.clone().into_bytes();
        for byte in bytes.chunks_mut(1) {
            check.check(byte);
        }
        assert_ne!(bytes, padded.as_bytes());
    }

    #[test]
    fn a_later_request_on_the_connection_is_followed_too() {
        let first = "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello";
        let second = "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(passes(first));
        assert!(!passes(&format!("{first}{second}")));
    }

    #[test]
    fn heads_are_counted_when_they_begin() {
        let heads = |text: &str| {
            let mut check = FramingCheck::new();
            check.check(&mut text.as_bytes().to_vec());
            check.heads()
        };
        for (text, count) in [
            ("", 0),
            ("\r\n", 0),
            ("G", 1),
            ("GET / HTTP/1.1\r\n", 1),
            ("GET / HTTP/1.1\r\n\r\n", 1),
            ("GET / HTTP/1.1\r\n\r\nG", 2),
            ("GET / HTTP/1.1\n", 1),
            ("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nG", 1),
        ] {
            assert_eq!(heads(text), count, "{text:?}");
        }
    }

    #[test]
    fn it_knows_when_a_head_is_under_way() {
        let mut check = FramingCheck::new();
        assert!(!check.is_in_head());
        check.check(&mut b"G".to_vec());
        assert!(check.is_in_head());
        check.check(&mut b"ET / HTTP/1.1\r\nA: b\r\n".to_vec());
        assert!(check.is_in_head());
        check.check(&mut b"\r\n".to_vec());
        assert!(!check.is_in_head());
    }
}
