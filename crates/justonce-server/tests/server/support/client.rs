//! A client that can stop anywhere.

use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::process::LIMIT;
use crate::support::upstream::{Message, read_message};

/// The pause between two questions of the same kind.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// A request on a connection of its own.
pub(crate) struct Call {
    stream: BufReader<TcpStream>,
}

impl Call {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// The same from another address of this machine.
    pub(crate) fn connect_from(from: Ipv4Addr, address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind((from, 0).into()).unwrap();
            socket.connect(address).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// Sends a payment with this key.
    pub(crate) fn pay(address: SocketAddr, key: &str, body: &str) -> Self {
        Self::pay_with(address, key, body, "")
    }

    /// The same with more lines in its head.
    pub(crate) fn pay_with(address: SocketAddr, key: &str, body: &str, more: &str) -> Self {
        let mut call = Self::connect(address);
        let head = format!(
            "POST /payments HTTP/1.1\r\nhost: test\r\nidempotency-key: {key}\r\n{more}\
             content-length: {}\r\n\r\n",
            body.len()
        );
        call.write(format!("{head}{body}").as_bytes());
        call
    }

    /// Sends any request: `POST /payments`, its headers and its body.
    pub(crate) fn send(
        address: SocketAddr,
        request: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Self {
        let body = body.as_ref();
        let lines = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let head = format!(
            "{request} HTTP/1.1\r\nhost: test\r\n{}content-length: {}\r\n\r\n",
            lines.collect::<String>(),
            body.len()
        );
        let mut call = Self::connect(address);
        call.write(&[head.as_bytes(), body].concat());
        call
    }

    /// Asks about what was sent: by the same host.
    pub(crate) fn ask(address: SocketAddr, path: &str) -> Message {
        Self::send(address, &format!("GET {path}"), &[], "").answer()
    }

    /// Asks an operator's address, which answers to this host.
    pub(crate) fn get(address: SocketAddr, path: &str) -> Message {
        let mut call = Self::connect(address);
        call.write(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes());
        call.answer()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// The whole answer.
    pub(crate) fn answer(&mut self) -> Message {
        self.try_answer().expect("the gateway closed the connection")
    }

    pub(crate) fn try_answer(&mut self) -> Option<Message> {
        read_message(&mut self.stream)
    }

    /// Says that nothing more comes.
    pub(crate) fn finish(&self) {
        // The gateway may have closed the connection already.
        let _ = self.stream.get_ref().shutdown(std::net::Shutdown::Write);
    }

    /// Some bytes, as they come.
    pub(crate) fn some(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }
}

/// A payment and its whole answer.
pub(crate) fn pay(address: SocketAddr, key: &str, body: &str) -> Message {
    Call::pay(address, key, body).answer()
}

/// The same, willing to wait: until a lease has lapsed, for example.
pub(crate) fn pay_patiently(address: SocketAddr, key: &str, body: &str) -> Message {
    Call::pay_with(address, key, body, "prefer: wait=20\r\n").answer()
}

/// The state of a key, as the gateway tells it.
pub(crate) fn state(address: SocketAddr, key: &str) -> String {
    let answer = Call::ask(address, &format!("/.well-known/idempotency/{key}?path=/payments"));
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    body["state"].as_str().unwrap_or_default().to_owned()
}

/// Asks until the answer is as wanted.
pub(crate) fn until<T: std::fmt::Debug>(
    what: &str,
    mut ask: impl FnMut() -> T,
    wanted: impl Fn(&T) -> bool,
) -> T {
    let start = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    loop {
        let answer = ask();
        if wanted(&answer) {
            return answer;
        }
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        assert!(now - start < LIMIT, "{what} never came: {answer:?}");
        std::thread::park_timeout(ASK_AGAIN_AFTER);
    }
}
