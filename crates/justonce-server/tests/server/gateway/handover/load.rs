//! Restarts under load: every request is answered, and every effect happens once.

use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use justonce_testbed::RedisServer;
use nix::sys::signal::Signal;

use super::stage::Successor;
use crate::gateway::stage::BODY;
use crate::support::client::{Call, until};
use crate::support::process::{Home, LIMIT};
use crate::support::upstream::{Message, read_message};

/// A service that counts how often each key took effect.
struct Ledger {
    address: SocketAddr,
    effects: Arc<Mutex<HashMap<String, usize>>>,
}

impl Ledger {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let effects = Arc::<Mutex<HashMap<String, usize>>>::default();
        let book = Arc::clone(&effects);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let book = Arc::clone(&book);
                std::thread::spawn(move || answer(stream, &book));
            }
        });
        Self { address, effects }
    }

    /// The keys whose effects are not exactly one.
    fn wrong(&self) -> Vec<(String, usize)> {
        let effects = self.effects.lock().unwrap();
        effects.iter().filter(|(_, count)| **count != 1).map(|(k, n)| (k.clone(), *n)).collect()
    }

    fn count(&self) -> usize {
        self.effects.lock().unwrap().len()
    }
}

fn answer(stream: TcpStream, book: &Mutex<HashMap<String, usize>>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_message(&mut stream) {
        let key = request.header("idempotency-key").unwrap_or_default().to_owned();
        *book.lock().unwrap().entry(key).or_default() += 1;
        let body = request.body;
        let head = format!("HTTP/1.1 201 Created\r\ncontent-length: {}\r\n\r\n", body.len());
        if stream.get_mut().write_all(&[head.as_bytes(), &body].concat()).is_err() {
            return;
        }
    }
}

/// Clients that send one operation after the other, half of them over connections that they keep.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    fn start(address: SocketAddr, clients: usize) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let client = |number: usize| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            std::thread::spawn(move || {
                let mut kept = None;
                let mut failures = Vec::new();
                for at in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let keeps = number.is_multiple_of(2);
                    let key = format!("client-{number}-{at}");
                    match send(address, &mut kept, &key) {
                        Ok(answer) if answer.status() == 201 => {
                            let closes = answer.header("connection") == Some("close");
                            kept = kept.filter(|_| keeps && !closes);
                        }
                        Ok(answer) => failures.push(format!("{key}: {}", answer.start)),
                        Err(why) => {
                            failures.push(format!("{key}: {why}"));
                            kept = None;
                        }
                    }
                    answered.fetch_add(1, Ordering::SeqCst);
                }
                failures
            })
        };
        let clients = (0..clients).map(client).collect();
        Self { stop, answered, clients }
    }

    /// Waits until so many more were answered.
    fn works(&self, more: usize) {
        let wanted = self.answered.load(Ordering::SeqCst) + more;
        until("the answers", || self.answered.load(Ordering::SeqCst), |seen| *seen >= wanted);
    }

    /// What was not answered with 201.
    fn end(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::SeqCst);
        let failures = self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        (self.answered.load(Ordering::SeqCst), failures)
    }
}

fn send(
    address: SocketAddr,
    kept: &mut Option<BufReader<TcpStream>>,
    key: &str,
) -> Result<Message, String> {
    let is_new = kept.is_none();
    let failed = |what: &str| format!("{what}, on a connection that is new: {is_new}");
    if is_new {
        let stream = TcpStream::connect(address).map_err(|error| failed(&error.to_string()))?;
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        *kept = Some(BufReader::new(stream));
    }
    let stream = kept.as_mut().unwrap();
    let head = format!("POST /pay HTTP/1.1\r\nhost: t\r\nidempotency-key: {key}\r\n");
    let request = format!("{head}content-length: {}\r\n\r\n{BODY}", BODY.len());
    let sent = stream.get_mut().write_all(request.as_bytes());
    sent.map_err(|error| failed(&error.to_string()))?;
    read_message(stream).ok_or_else(|| failed("no answer"))
}

/// Restarts under load, twice, and looks at every answer and every effect.
fn under_load(store: Option<&str>) {
    let (home, ledger) = (Home::new(), Ledger::start());
    match store {
        None => home.configure(ledger.address, ""),
        Some(store) => home.configure_on(ledger.address, store, ""),
    }
    let gateway = home.start();
    let load = Load::start(gateway.address, 10);
    load.works(300);
    gateway.signal(Signal::SIGUSR2);
    if store.is_none() {
        println!("{}", gateway.log_line("the store was handed over"));
    }
    let first = Successor::of(&gateway.log_line("the successor serves"));
    load.works(300);
    gateway.log_line("stopped");
    // The successor can be restarted as well.
    first.signal(Signal::SIGUSR2);
    let second = Successor::of(&gateway.log_line("the successor serves"));
    load.works(300);
    gateway.log_line("stopped");
    until("its end", || first.is_alive(), |alive| !alive);
    assert!(Call::get(gateway.admin, "/readyz").status() == 200);
    let (answered, failures) = load.end();
    assert!(failures.is_empty(), "{} of {answered}: {failures:?}", failures.len());
    assert_eq!(ledger.wrong(), [], "each took effect once");
    assert_eq!(ledger.count(), answered);
    // What was stored by one is known to the next.
    assert!(pay_again(gateway.address).is_replay());
    second.signal(Signal::SIGTERM);
    gateway.log_line("stopped");
    assert!(gateway.wait().success());
}

/// The first operation of the first client.
fn pay_again(address: SocketAddr) -> Message {
    send(address, &mut None, "client-0-0").unwrap()
}

#[test]
fn h55_a_restart_under_load_refuses_and_loses_nothing_on_the_embedded_store() {
    under_load(None);
}

#[test]
fn h55_a_restart_under_load_refuses_and_loses_nothing_on_redis() {
    let redis = RedisServer::start().unwrap();
    under_load(Some(&redis.url()));
}
