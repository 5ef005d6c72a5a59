//! A service that does what the test says, one connection at a time.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::support::process::LIMIT;

/// A service that does nothing by itself.
pub(crate) struct Upstream {
    listener: TcpListener,
}

/// A connection from the gateway.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

/// A message that was read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// The first line.
    pub(crate) start: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

impl Upstream {
    pub(crate) fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").unwrap() }
    }

    /// On an address that was used before.
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { listener: TcpListener::bind(address).unwrap() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// The next connection of the gateway.
    pub(crate) fn accept(&self) -> Connection {
        self.listener.set_nonblocking(false).unwrap();
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Connection { stream: BufReader::new(stream) }
    }

    /// Whether there was no connection since the last accept.
    pub(crate) fn is_left_alone(&self) -> bool {
        self.listener.set_nonblocking(true).unwrap();
        self.listener.accept().is_err()
    }

    /// Answers everything with 201 and what it was sent, from threads of its own, and tells how
    /// often it was asked.
    pub(crate) fn serve(self) -> std::sync::Arc<std::sync::atomic::AtomicUsize> {
        let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&asked);
        self.listener.set_nonblocking(false).unwrap();
        std::thread::spawn(move || {
            for stream in self.listener.incoming().map_while(Result::ok) {
                let count = std::sync::Arc::clone(&count);
                std::thread::spawn(move || {
                    let mut connection = Connection { stream: BufReader::new(stream) };
                    while let Some(request) = connection.try_read() {
                        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        connection.answer("201 Created", &[], &request.body);
                    }
                });
            }
        });
        asked
    }
}

impl Connection {
    pub(crate) fn read(&mut self) -> Message {
        self.try_read().expect("the gateway closed the connection")
    }

    pub(crate) fn try_read(&mut self) -> Option<Message> {
        read_message(&mut self.stream)
    }

    pub(crate) fn answer(&mut self, status: &str, headers: &[(&str, &str)], body: &[u8]) {
        self.begin_answer(status, headers, body.len());
        self.write(body);
    }

    /// The head of an answer of this length.
    pub(crate) fn begin_answer(&mut self, status: &str, headers: &[(&str, &str)], length: usize) {
        let headers: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n");
        self.write(head.as_bytes());
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        // The gateway may have been killed.
        let _ = self.stream.get_mut().write_all(bytes);
    }
}

/// Reads a message with a length or chunks, to its end.
pub(crate) fn read_message(stream: &mut impl BufRead) -> Option<Message> {
    let start = line(stream)?;
    let headers = fields(stream)?;
    let find = |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, v)| v);
    let is_chunked = find("transfer-encoding").is_some_and(|value| value.contains("chunked"));
    let is_bare = ["HTTP/1.1 1", "HTTP/1.1 204", "HTTP/1.1 304"];
    let is_bare = is_bare.iter().any(|bare| start.starts_with(bare));
    let (mut body, mut trailers) = (Vec::new(), Vec::new());
    if is_chunked {
        loop {
            let size = usize::from_str_radix(line(stream)?.trim(), 16).ok()?;
            if size == 0 {
                trailers = fields(stream)?;
                break;
            }
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).ok()?;
            body.extend_from_slice(chunk.get(..size)?);
        }
    } else if let Some(length) = find("content-length").filter(|_| !is_bare) {
        body = vec![0; length.parse().ok()?];
        stream.read_exact(&mut body).ok()?;
    }
    Some(Message { start, headers, body, trailers })
}

/// Lines of names and values, up to an empty one.
fn fields(stream: &mut impl BufRead) -> Option<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        let text = line(stream)?;
        if text.is_empty() {
            return Some(fields);
        }
        let (name, value) = text.split_once(':')?;
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn line(stream: &mut impl BufRead) -> Option<String> {
    let mut bytes = Vec::new();
    stream.read_until(b'\n', &mut bytes).ok().filter(|read| *read > 0)?;
    Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

impl Message {
    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        self.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }

    /// The status of an answer.
    pub(crate) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The values of all lines of a name.
    pub(crate) fn all(&self, wanted: &str) -> Vec<&str> {
        let lines = self.headers.iter().filter(|(name, _)| name == wanted);
        lines.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The code of a problem.
    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}
