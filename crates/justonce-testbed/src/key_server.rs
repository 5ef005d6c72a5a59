//! A server of public keys that does what the test says.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::ServerError;

/// How long a client may take to ask.
const LIMIT: Duration = Duration::from_secs(30);

/// A server that answers every GET with the same document, over HTTP/1.1.
///
/// ```
/// use justonce_testbed::{KeyAnswer, KeyServer};
///
/// # fn main() -> Result<(), justonce_testbed::ServerError> {
/// let server = KeyServer::start(r#"{"keys":[]}"#)?;
/// assert!(server.url().starts_with("http://127.0.0.1:"));
/// server.answer(KeyAnswer::Status(503));
/// assert_eq!(server.asked(), 0);
/// # Ok(())
/// # }
/// ```
pub struct KeyServer {
    address: SocketAddr,
    state: Arc<State>,
}

/// What a [`KeyServer`] does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyAnswer {
    /// It answers 200 with this.
    Document(Vec<u8>),
    /// It answers with this status and nothing else.
    Status(u16),
    /// It answers 200 with so many bytes, and does not say so before.
    Endless(usize),
    /// It closes the connection.
    HangUp,
    /// It takes the request and does nothing.
    Silence,
}

struct State {
    now: Mutex<(KeyAnswer, usize)>,
    changed: Condvar,
}

impl State {
    fn now(&self) -> MutexGuard<'_, (KeyAnswer, usize)> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyServer {
    /// Starts a server with a document.
    ///
    /// # Errors
    ///
    /// If there is no free port.
    pub fn start(document: impl Into<Vec<u8>>) -> Result<Self, ServerError> {
        let failed = |error: std::io::Error| ServerError::new("no server of keys", &error);
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let now = Mutex::new((KeyAnswer::Document(document.into()), 0));
        let state = Arc::new(State { now, changed: Condvar::new() });
        let shared = Arc::clone(&state);
        // It ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                thread::spawn(move || drop(serve(stream, &state)));
            }
        });
        Ok(Self { address, state })
    }

    /// Where the keys are.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/keys", self.address)
    }

    /// Answers with this document from now on.
    pub fn serve(&self, document: impl Into<Vec<u8>>) {
        self.answer(KeyAnswer::Document(document.into()));
    }

    /// Does this from now on.
    pub fn answer(&self, answer: KeyAnswer) {
        self.state.now().0 = answer;
        self.state.changed.notify_all();
    }

    /// How often it was asked.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.state.now().1
    }

    /// Waits until it was asked so often; fails if that takes too long.
    ///
    /// # Errors
    ///
    /// If it was not asked so often in time.
    pub fn until_asked(&self, count: usize) -> Result<(), ServerError> {
        let now = self.state.now();
        let wait = self.state.changed.wait_timeout_while(now, LIMIT, |now| now.1 < count);
        let (now, _) = wait.unwrap_or_else(PoisonError::into_inner);
        if now.1 < count {
            return Err(ServerError::new("the keys were not asked for often enough", &count));
        }
        Ok(())
    }
}

impl fmt::Debug for KeyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyServer").field("address", &self.address).finish_non_exhaustive()
    }
}

fn serve(mut stream: TcpStream, state: &State) -> std::io::Result<()> {
    stream.set_read_timeout(Some(LIMIT))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 && line.trim_end() != "" {
        line.clear();
    }
    let answer = {
        let mut now = state.now();
        now.1 += 1;
        state.changed.notify_all();
        now.0.clone()
    };
    match answer {
        KeyAnswer::Document(document) => {
            let length = document.len();
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n")?;
            stream.write_all(&document)
        }
        KeyAnswer::Status(status) => {
            write!(stream, "HTTP/1.1 {status} Test\r\ncontent-length: 0\r\nlocation: /\r\n\r\n")
        }
        KeyAnswer::Endless(bytes) => {
            write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")?;
            let part = [b' '; 1024];
            (0..bytes / part.len()).try_for_each(|_| stream.write_all(&part))
        }
        KeyAnswer::HangUp => Ok(()),
        // Until the other side has enough.
        KeyAnswer::Silence => reader.read(&mut [0]).map(|_| ()),
    }
}
