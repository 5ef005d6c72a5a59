//! Restarts that succeed: what waits, what is told, and what is handed over.

use std::io::{BufReader, Write};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::stage::{Restarting, Successor, restarted};
use crate::gateway::reload::shows;
use crate::gateway::stage::{BODY, started, upgraded};
use crate::support::client::{Call, pay, state, until};
use crate::support::process::{Gateway, Home};
use crate::support::upstream::{Upstream, read_message};

#[test]
fn h55_new_connections_wait_for_what_runs_and_no_operation_becomes_unknown() {
    let Restarting { home: _home, upstream, gateway, mut running, mut connection } =
        Restarting::start("");
    let mut waiting = Call::pay(gateway.address, "waiting", BODY);
    connection.answer("201 Created", &[], b"paid");
    let answer = running.answer();
    assert_eq!((answer.text().as_str(), answer.header("connection")), ("paid", Some("close")));
    let _successor = Successor::of(&gateway.log_line("the successor serves"));
    let mut connection = upstream.accept();
    connection.read();
    connection.answer("201 Created", &[], b"paid later");
    assert_eq!(waiting.answer().text(), "paid later");
    let address = gateway.address;
    assert!(gateway.wait().success());
    assert!(pay(address, "running", BODY).is_replay());
    assert_eq!(state(address, "waiting"), "completed");
}

#[test]
fn h55_what_ran_before_makes_nobody_wait() {
    let (_home, upstream, gateway) = started("");
    let mut running = Call::pay(gateway.address, "running", BODY);
    let mut connection = upstream.accept();
    connection.read();
    gateway.signal(Signal::SIGUSR2);
    gateway.log_line("clients are told to come back");
    // Longer than a connection that rests is waited for.
    for number in 0..3 {
        let mut other = Call::pay(gateway.address, &format!("k{number}"), BODY);
        let mut second = upstream.accept();
        second.read();
        second.answer("201 Created", &[("connection", "close")], b"paid");
        assert_eq!(other.answer().header("connection"), Some("close"));
    }
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(running.answer().text(), "paid");
    let lines = gateway.log_up_to("the successor serves");
    let _successor = Successor::of(lines.last().unwrap());
    assert!(pay(gateway.address, "running", BODY).is_replay());
}

#[test]
fn h55_an_operation_whose_caller_has_left_makes_nobody_wait() {
    let (_home, upstream, gateway) = started("");
    let running = Call::pay(gateway.address, "running", BODY);
    let mut connection = upstream.accept();
    connection.read();
    drop(running);
    gateway.signal(Signal::SIGUSR2);
    gateway.log_line("clients are told to come back");
    let mut other = Call::pay(gateway.address, "other", BODY);
    let mut second = upstream.accept();
    second.read();
    second.answer("201 Created", &[], b"paid");
    assert_eq!(other.answer().status(), 201);
    connection.answer("201 Created", &[], b"paid");
    let lines = gateway.log_up_to("the successor serves");
    let _successor = Successor::of(lines.last().unwrap());
    assert!(!lines.iter().any(|line| line.contains("the restart failed")), "{lines:?}");
    assert!(pay(gateway.address, "running", BODY).is_replay());
}

#[test]
fn h55_a_websocket_does_not_hold_the_restart() {
    let (_home, upstream, gateway) = started("grace = '20s'");
    let (mut client, mut server) = upgraded(&upstream, &gateway);
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

/// Also one with a method that is protected where there is a key.
#[test]
fn h55_a_stream_that_passes_through_does_not_hold_the_restart() {
    let route = "[[route]]\nmatch = 'POST /watch'\nkey = 'optional'";
    let (_home, upstream, gateway) = started(&format!("grace = '20s'\n{route}"));
    let mut client = Call::send(gateway.address, "POST /watch", &[], "");
    let mut server = upstream.accept();
    server.read();
    server.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n");
    let mut read_up_to = |end: &[u8]| {
        let mut seen = Vec::new();
        while !seen.ends_with(end) {
            seen.extend(client.some(1));
        }
    };
    read_up_to(b"first\r\n");
    let _successor = restarted(&gateway);
    // It still runs, in the old process, for the grace period.
    server.write(b"6\r\nsecond\r\n0\r\n\r\n");
    read_up_to(b"second\r\n0\r\n\r\n");
    assert!(gateway.wait().success());
}

/// The successor reads the files long before it serves.
#[test]
fn h55_a_certificate_that_is_renewed_during_a_restart_is_served_after_it() {
    let (home, upstream) = (Home::new(), Upstream::new());
    let (cert, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    let install = || {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        made.cert
    };
    let first = install();
    let tls = format!("[tls]\ncert = '{}'\nkey = '{}'\n", cert.display(), key.display());
    home.configure(upstream.address(), &tls);
    let gateway = home.start();
    assert!(shows(gateway.address, &first));
    // The restart waits for it.
    let rests = std::net::TcpStream::connect(gateway.address).unwrap();
    gateway.signal(Signal::SIGUSR2);
    gateway.log_line("everything but the store is ready");
    let second = install();
    drop(rests);
    let _successor = Successor::of(&gateway.log_line("the successor serves"));
    until("the second", || shows(gateway.address, &second), |shown| *shown);
}

/// `systemctl kill -s HUP` reaches all processes of a service.
#[test]
fn h55_a_signal_to_reload_does_not_end_a_successor() {
    let (_home, upstream, gateway) = started("");
    upstream.serve();
    // The restart waits for it.
    let mut rests = Call::pay(gateway.address, "k", BODY);
    assert_eq!(rests.answer().status(), 201);
    gateway.signal(Signal::SIGUSR2);
    let successor = Successor::of(&gateway.log_line("a successor starts"));
    gateway.log_line("everything but the store is ready");
    successor.signal(Signal::SIGHUP);
    gateway.signal(Signal::SIGHUP);
    drop(rests);
    let lines = gateway.log_up_to("the successor serves");
    assert!(!lines.iter().any(|line| line.contains("the restart failed")), "{lines:?}");
    assert!(pay(gateway.address, "k", BODY).is_replay());
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

/// Whoever has put a socket in the place of ours keeps it.
#[test]
fn h55_the_socket_of_another_program_is_not_removed_by_a_successor() {
    let (home, upstream) = (Home::new(), Upstream::new());
    let path = home.path().join("http.sock");
    let text = format!(
        "listen = 'unix:{}'\nadmin = '127.0.0.1:0'\nupstream = 'http://{}'\nstore = 'memory:'\n",
        path.display(),
        upstream.address(),
    );
    std::fs::write(home.config(), text).unwrap();
    let (gateway, _) = Gateway::start_anywhere(home.command());
    std::fs::remove_file(&path).unwrap();
    let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let successor = restarted(&gateway);
    gateway.log_line("stopped");
    successor.signal(Signal::SIGTERM);
    gateway.log_line("stopped");
    assert!(path.exists());
}
