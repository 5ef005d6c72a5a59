//! A gateway under attack.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::client::pay;
use crate::support::process::{Gateway, Home, LIMIT};
use crate::support::upstream::{Message, Upstream, read_message};

/// More memory than this is never needed, in MiB.
pub(crate) const MEMORY_MIB: u64 = 200;

/// A gateway and the service behind it, which answers everything.
pub(crate) struct Attacked {
    _home: Home,
    pub(crate) gateway: Gateway,
    asked: Arc<AtomicUsize>,
    checks: usize,
}

impl Attacked {
    pub(crate) fn start(more: &str) -> Self {
        let (home, upstream) = (Home::new(), Upstream::new());
        home.configure(upstream.address(), more);
        let gateway = home.start();
        Self { _home: home, gateway, asked: upstream.serve(), checks: 0 }
    }

    /// The same with a service that answers GET with so many bytes.
    pub(crate) fn serving_large(more: &str, bytes: usize) -> Self {
        let (home, upstream) = (Home::new(), Upstream::new());
        home.configure(upstream.address(), more);
        let gateway = home.start();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            let large = Arc::new(vec![b'x'; bytes]);
            loop {
                let (mut connection, large) = (upstream.accept(), Arc::clone(&large));
                let count = Arc::clone(&count);
                std::thread::spawn(move || {
                    while let Some(request) = connection.try_read() {
                        count.fetch_add(1, Ordering::SeqCst);
                        let is_get = request.start.starts_with("GET ");
                        let body = if is_get { &large } else { &request.body };
                        connection.answer("201 Created", &[], body);
                    }
                });
            }
        });
        Self { _home: home, gateway, asked, checks: 0 }
    }

    /// A connection of an attacker.
    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.gateway.address)
    }

    /// Sends bytes, and reads until the gateway closes the connection.
    pub(crate) fn shout(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // The gateway may close before it has read everything.
        let _ = stream.write_all(bytes);
        heard(&mut stream)
    }

    /// The same, and says that nothing more comes.
    pub(crate) fn shout_and_end(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        heard(&mut stream)
    }

    /// A question that the gateway answers itself, if it lets the caller in.
    pub(crate) fn asks(&self) -> Option<TcpStream> {
        let mut stream = self.connect();
        let question = b"GET /.well-known/idempotency/k?path=/p HTTP/1.1\r\nhost: t\r\n\r\n";
        stream.write_all(question).ok()?;
        read_message(&mut BufReader::new(&stream)).map(|_| stream)
    }

    /// Waits for the end of the gateway after a signal.
    pub(crate) fn end(self) -> ExitStatus {
        self.gateway.wait()
    }

    /// How often the service was asked by attackers.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst) - self.checks
    }

    /// Everybody else is served, by the same process, and it has not grown.
    pub(crate) fn is_well(&mut self) {
        self.checks += 1;
        let key = format!("well-{}", self.checks);
        let answer = pay(self.gateway.address, &key, "{\"amount\":5}");
        assert_eq!((answer.status(), answer.text().as_str()), (201, "{\"amount\":5}"));
        // A process that has ended has no memory to speak of: this fails then.
        let memory = self.gateway.resident_mib();
        assert!(memory < MEMORY_MIB, "{memory} MiB");
    }
}

/// A connection that does not wait for ever.
pub(crate) fn connect(gateway: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(gateway).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Everything until the connection ends, however it ends.
pub(crate) fn heard(stream: &mut TcpStream) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return all,
            Ok(count) => all.extend_from_slice(&buffer[..count]),
            Err(error) if is_closed(&error) => return all,
            Err(error) => panic!("the connection stays open: {error}; heard {all:?}"),
        }
    }
}

/// Whether an error means that the other side has closed.
pub(crate) fn is_closed(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), ConnectionReset | BrokenPipe | ConnectionAborted)
}

/// The statuses of all answers in what was heard.
pub(crate) fn statuses(heard: &[u8]) -> Vec<u16> {
    messages(heard).iter().map(Message::status).collect()
}

pub(crate) fn messages(heard: &[u8]) -> Vec<Message> {
    let mut reader = BufReader::new(heard);
    std::iter::from_fn(|| read_message(&mut reader)).collect()
}

/// Seconds since some moment; only differences count.
pub(crate) fn seconds() -> f64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
}
