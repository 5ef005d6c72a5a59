//! A service behind a gateway, whose every request is heard and counted.

use std::io::{BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use crate::support::process::LIMIT;
use crate::support::upstream::{Message, read_message};

/// What a service does with a request, given how many there were with it: the bytes of an answer,
/// or nothing if the test answers.
type Answer = dyn Fn(usize, &Message) -> Option<Vec<u8>> + Send + Sync;

/// A service. It lives on when the handle is gone: gateways may still hold connections to it.
pub(crate) struct Service {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Message>>>,
    asked: Receiver<Asked>,
}

/// A request that waits for its answer.
pub(crate) struct Asked {
    pub(crate) request: Message,
    stream: TcpStream,
}

impl Service {
    /// A service that waits to be told what to answer.
    pub(crate) fn patient() -> Self {
        Self::start(Arc::new(|_, _| None))
    }

    /// The same, but for one path, where it answers `204` by itself.
    pub(crate) fn patient_but_at(path: &str) -> Self {
        let at = format!("POST {path} ");
        Self::start(Arc::new(move |_, request| {
            request.start.starts_with(&at).then(|| reply("204 No Content", &[], b""))
        }))
    }

    /// A service that answers by itself.
    pub(crate) fn answering(
        answer: impl Fn(usize, &Message) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self::start(Arc::new(move |number, request| Some(answer(number, request))))
    }

    fn start(answer: Arc<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heard: Arc<Mutex<Vec<Message>>> = Arc::default();
        let (tell, asked) = channel();
        let book = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answer, book, tell) = (Arc::clone(&answer), Arc::clone(&book), tell.clone());
                std::thread::spawn(move || serve(&stream, &*answer, &book, &tell));
            }
        });
        Self { address, heard, asked }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next request, which waits for its answer.
    pub(crate) fn next(&self) -> Asked {
        self.asked.recv_timeout(LIMIT).expect("the service is not asked")
    }

    /// How many requests there were.
    pub(crate) fn calls(&self) -> usize {
        self.heard.lock().unwrap().len()
    }

    /// A request, counted from 1.
    pub(crate) fn heard(&self, number: usize) -> Message {
        self.heard.lock().unwrap()[number - 1].clone()
    }
}

/// Reads requests from a connection until its end.
fn serve(stream: &TcpStream, answer: &Answer, book: &Mutex<Vec<Message>>, tell: &Sender<Asked>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(request) = read_message(&mut reader) {
        let number = {
            let mut book = book.lock().unwrap();
            book.push(request.clone());
            book.len()
        };
        let mut asked = Asked { request, stream: stream.try_clone().unwrap() };
        match answer(number, &asked.request) {
            Some(bytes) => asked.write(&bytes),
            // The test may be over.
            None => drop(tell.send(asked)),
        }
    }
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.request.header(name)
    }

    pub(crate) fn answer(mut self, status: &str, headers: &[(&str, &str)], body: &[u8]) {
        self.write(&reply(status, headers, body));
    }

    /// Some bytes of an answer.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        // The gateway may be gone.
        let _ = self.stream.write_all(bytes);
    }

    /// Closes the connection.
    pub(crate) fn hang_up(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// An answer of a known length. One that has none by its nature says none.
pub(crate) fn reply(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let lines: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = match (status, body) {
        (status, []) if status.starts_with("204") || status.starts_with("304") => String::new(),
        (_, body) => format!("content-length: {}\r\n", body.len()),
    };
    let head = format!("HTTP/1.1 {status}\r\n{lines}{length}\r\n");
    [head.as_bytes(), body].concat()
}

/// The answer of a service that counts: `payment 1`, `payment 2` and so on.
pub(crate) fn counted(number: usize) -> Vec<u8> {
    reply("201 Created", &[("location", "/payments/1")], format!("payment {number}").as_bytes())
}
