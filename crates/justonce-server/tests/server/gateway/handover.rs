//! Restart by SIGUSR2: a successor takes the sockets over (h55).

use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use justonce_testbed::RedisServer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::gateway::stage::{BODY, started};
use crate::support::client::{Call, pay, state, until};
use crate::support::process::{Gateway, Home, LIMIT};
use crate::support::upstream::{Message, Upstream, read_message};

/// A process that a gateway has started. It is ended with the test.
struct Successor(Pid);

impl Successor {
    /// The one that this line of the log is about.
    fn of(line: &str) -> Self {
        let pid = line.split("pid=").nth(1).expect("a number").split_whitespace().next().unwrap();
        Self(Pid::from_raw(pid.parse().unwrap()))
    }

    fn signal(&self, signal: Signal) {
        kill(self.0, signal).unwrap();
    }

    fn is_alive(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        !status.is_empty() && !status.contains(") Z ")
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
    }
}

/// Restarts a gateway, and waits until its successor serves.
fn restarted(gateway: &Gateway) -> Successor {
    gateway.signal(Signal::SIGUSR2);
    Successor::of(&gateway.log_line("the successor serves"))
}

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

#[test]
fn h55_new_connections_wait_for_what_runs_and_no_operation_becomes_unknown() {
    let (_home, upstream, gateway) = started("");
    let mut running = Call::pay(gateway.address, "running", BODY);
    let mut connection = upstream.accept();
    connection.read();
    gateway.signal(Signal::SIGUSR2);
    gateway.log_line("a successor starts");
    // It says when new connections begin to wait.
    gateway.log_line("new connections wait");
    let mut waiting = Call::pay(gateway.address, "waiting", BODY);
    connection.answer("201 Created", &[], b"paid");
    let answer = running.answer();
    assert_eq!((answer.text().as_str(), answer.header("connection")), ("paid", Some("close")));
    let successor = Successor::of(&gateway.log_line("the successor serves"));
    let mut connection = upstream.accept();
    connection.read();
    connection.answer("201 Created", &[], b"paid later");
    assert_eq!(waiting.answer().text(), "paid later");
    let address = gateway.address;
    assert!(gateway.wait().success());
    assert!(pay(address, "running", BODY).is_replay());
    assert_eq!(state(address, "waiting"), "completed");
    drop(successor);
}

#[test]
fn h55_what_runs_for_too_long_makes_the_restart_fail_and_nothing_else() {
    let (_home, upstream, gateway) = started("handover_pause = '200ms'");
    let mut running = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    gateway.signal(Signal::SIGUSR2);
    let line = gateway.log_line("the restart failed");
    assert!(line.contains("had not ended within `handover_pause`"), "{line}");
    // It accepts connections again, and what ran goes on.
    let mut other = Call::pay(gateway.address, "other", BODY);
    let mut second = upstream.accept();
    second.read();
    second.answer("201 Created", &[], b"other");
    assert_eq!(other.answer().text(), "other");
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(running.answer().text(), "paid");
    // And the next restart succeeds.
    let _successor = restarted(&gateway);
    assert!(pay(gateway.address, "k", BODY).is_replay());
}

#[test]
fn h55_a_successor_with_a_wrong_configuration_changes_nothing() {
    let (home, upstream, gateway) = started("");
    let address = upstream.address();
    upstream.serve();
    home.configure(address, "[defaults]\nretenton = '1h'");
    gateway.signal(Signal::SIGUSR2);
    let line = gateway.log_line("the restart failed");
    assert!(line.contains("the successor has ended"), "{line}");
    assert_eq!(pay(gateway.address, "k", BODY).status(), 201);
    assert_eq!(Call::get(gateway.admin, "/readyz").status(), 200);
    home.configure(address, "");
    let _successor = restarted(&gateway);
    assert!(pay(gateway.address, "k", BODY).is_replay());
}

#[test]
fn h55_a_successor_that_fails_with_the_store_in_its_hands_gives_it_back() {
    let (home, upstream, gateway) = started("");
    let address = upstream.address();
    upstream.serve();
    assert_eq!(pay(gateway.address, "before", BODY).status(), 201);
    // What cannot be opened is found out only by opening it.
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    home.configure_on(address, &format!("file:{}", file.display()), "");
    gateway.signal(Signal::SIGUSR2);
    let line = gateway.log_line("the restart failed");
    assert!(line.contains("the successor has ended"), "{line}");
    assert!(pay(gateway.address, "before", BODY).is_replay());
    assert_eq!(pay(gateway.address, "after", BODY).status(), 201);
    home.configure(address, "");
    let _successor = restarted(&gateway);
    for key in ["before", "after"] {
        assert!(pay(gateway.address, key, BODY).is_replay());
    }
}

#[test]
fn h55_two_signals_at_once_start_one_successor() {
    let (_home, upstream, gateway) = started("");
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    gateway.signal(Signal::SIGUSR2);
    let successor = Successor::of(&gateway.log_line("a successor starts"));
    gateway.signal(Signal::SIGUSR2);
    gateway.log_line("new connections wait");
    gateway.signal(Signal::SIGUSR2);
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(call.answer().text(), "paid");
    let lines = gateway.log_up_to("stopped");
    let starts = lines.iter().filter(|line| line.contains("a successor starts")).count();
    assert_eq!(starts, 0, "{lines:?}");
    assert!(successor.is_alive());
    assert!(pay(gateway.address, "k", BODY).is_replay());
}

#[test]
fn h55_a_predecessor_that_is_killed_in_the_middle_leaves_everything_to_its_successor() {
    let (_home, upstream, gateway) = started("[defaults]\nlease = '1s'\n");
    let _call = Call::pay(gateway.address, "running", BODY);
    let mut connection = upstream.accept();
    connection.read();
    gateway.signal(Signal::SIGUSR2);
    let _successor = Successor::of(&gateway.log_line("a successor starts"));
    gateway.log_line("new connections wait");
    let mut waiting = Call::pay(gateway.address, "waiting", BODY);
    let address = gateway.address;
    gateway.signal(Signal::SIGKILL);
    gateway.log_line("the predecessor has died");
    let mut second = upstream.accept();
    second.read();
    second.answer("201 Created", &[], b"paid");
    assert_eq!(waiting.answer().text(), "paid");
    // As after any crash.
    until("unknown", || state(address, "running"), |state| state == "unknown");
    assert!(upstream.is_left_alone());
    let _ = gateway.wait();
}

#[test]
fn h55_a_signal_to_stop_in_the_middle_ends_both() {
    let (_home, upstream, gateway) = started("grace = '20s'");
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    gateway.signal(Signal::SIGUSR2);
    let successor = Successor::of(&gateway.log_line("a successor starts"));
    gateway.log_line("new connections wait");
    gateway.signal(Signal::SIGTERM);
    gateway.log_line("there will be no successor");
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(call.answer().text(), "paid");
    let address = gateway.address;
    assert!(gateway.wait().success());
    until("its end", || successor.is_alive(), |alive| !alive);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn h55_a_websocket_does_not_hold_the_restart() {
    let (_home, upstream, gateway) = started("grace = '20s'");
    let mut client = Call::connect(gateway.address);
    client.write(b"GET /ws HTTP/1.1\r\nhost: t\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    let mut server = upstream.accept();
    server.read();
    server
        .write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    assert_eq!(client.answer().status(), 101);
    let _successor = restarted(&gateway);
    // It still runs, in the old process, for the grace period.
    server.write(b"still there");
    assert_eq!(client.some(11), b"still there");
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(call.answer().text(), "paid");
    drop(client);
    drop(server);
    assert!(gateway.wait().success());
}

#[test]
fn h55_a_connection_that_rests_is_answered_once_more_and_told_to_close() {
    let (_home, upstream, gateway) = started("");
    upstream.serve();
    let mut call = Call::pay(gateway.address, "first", BODY);
    assert_eq!(call.answer().header("connection"), None);
    gateway.signal(Signal::SIGUSR2);
    let _successor = Successor::of(&gateway.log_line("a successor starts"));
    gateway.log_line("clients are told to come back");
    let head = "POST /payments HTTP/1.1\r\nhost: test\r\nidempotency-key: second\r\n";
    call.write(format!("{head}content-length: {}\r\n\r\n{BODY}", BODY.len()).as_bytes());
    let answer = call.answer();
    assert_eq!((answer.status(), answer.header("connection")), (201, Some("close")));
    assert!(call.try_answer().is_none());
    gateway.log_line("the successor serves");
}

/// The program is looked for where it was started: a new release there counts.
#[test]
fn h55_the_program_at_the_same_place_is_started() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "");
    upstream.serve();
    let place = home.path().join("justonce");
    let program = home.command().get_program().to_owned();
    std::os::unix::fs::symlink(&program, &place).unwrap();
    let mut command = std::process::Command::new("./justonce");
    command.current_dir(home.path()).args(home.command().get_args());
    let gateway = Gateway::start(command).unwrap();
    std::fs::remove_file(&place).unwrap();
    gateway.signal(Signal::SIGUSR2);
    let line = gateway.log_line("the restart failed");
    assert!(line.contains("cannot be started"), "{line}");
    assert_eq!(pay(gateway.address, "k", BODY).status(), 201);
    std::os::unix::fs::symlink(&program, &place).unwrap();
    let _successor = restarted(&gateway);
    assert!(pay(gateway.address, "k", BODY).is_replay());
}

/// The pause is told in the log.
#[test]
fn h55_the_pause_is_short_and_told() {
    let (_home, upstream, gateway) = started("");
    upstream.serve();
    for number in 0..200 {
        assert_eq!(pay(gateway.address, &format!("k-{number}"), BODY).status(), 201);
    }
    gateway.signal(Signal::SIGUSR2);
    let line = gateway.log_line("the store was handed over");
    println!("{line}");
    let pause = line.split(" pause=").nth(1).unwrap().split_whitespace().next().unwrap();
    let pause = humantime_of(pause);
    assert!(pause < Duration::from_secs(10), "{line}");
    let _successor = Successor::of(&gateway.log_line("the successor serves"));
}

/// A duration as `Debug` writes it.
fn humantime_of(text: &str) -> Duration {
    let unit = text.find(|c: char| c.is_alphabetic() || c == 'µ').unwrap();
    let (number, unit) = text.split_at(unit);
    let scale = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        _ => 1e-6,
    };
    Duration::from_secs_f64(number.parse::<f64>().unwrap() * scale)
}

/// Only one process owns a Unix socket's file, and the last one removes it.
#[test]
fn h55_unix_sockets_and_their_files_are_handed_over() {
    let (home, upstream) = (Home::new(), Upstream::new());
    let path = home.path().join("http.sock");
    let store = home.path().join("data");
    let text = format!(
        "listen = 'unix:{}'\nadmin = '127.0.0.1:0'\nupstream = 'http://{}'\nstore = 'file:{}'\n",
        path.display(),
        upstream.address(),
        store.display()
    );
    std::fs::write(home.config(), text).unwrap();
    upstream.serve();
    let (gateway, shown) = Gateway::start_anywhere(home.command());
    assert_eq!(shown, format!("listening on unix:{}", path.display()));
    let successor = restarted(&gateway);
    gateway.log_line("stopped");
    assert!(path.exists());
    let stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let mut stream = BufReader::new(stream);
    let request = "GET /a HTTP/1.1\r\nhost: t\r\n\r\n";
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    assert_eq!(read_message(&mut stream).unwrap().status(), 201);
    successor.signal(Signal::SIGTERM);
    gateway.log_line("stopped");
    assert!(!path.exists());
}
