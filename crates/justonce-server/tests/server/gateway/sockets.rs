//! Unix sockets on both sides, and sockets that the service manager has opened.

use std::io::{BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;

use crate::gateway::stage::BODY;
use crate::support::client::{Call, pay, until};
use crate::support::process::{Gateway, Home, LIMIT};
use crate::support::upstream::{Message, Upstream, read_message};

/// A gateway on a Unix socket.
fn on_unix(home: &Home, upstream: &str, more: &str) -> PathBuf {
    let path = home.path().join("http.sock");
    let text = format!(
        "listen = 'unix:{}'\nadmin = '127.0.0.1:0'\nupstream = '{upstream}'\nstore = 'memory:'\n\
         {more}\n",
        path.display()
    );
    std::fs::write(home.config(), text).unwrap();
    path
}

/// A payment over a Unix socket, with more lines in its head.
fn pay_over(path: &Path, key: &str, more: &str) -> Message {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut stream = BufReader::new(stream);
    let head = format!("POST /payments HTTP/1.1\r\nhost: shop\r\nidempotency-key: {key}\r\n{more}");
    let request = format!("{head}content-length: {}\r\n\r\n{BODY}", BODY.len());
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    read_message(&mut stream).unwrap()
}

#[test]
fn operations_over_unix_sockets_take_effect_once() {
    let (home, service) = (Home::new(), tempfile::tempdir().unwrap());
    let socket = service.path().join("service.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let log = home.path().join("access.log");
    let path = on_unix(
        &home,
        &format!("unix:{}", socket.display()),
        &format!("listen_mode = '0600'\naccess_log.to = '{}'\n", log.display()),
    );
    let (gateway, _) = Gateway::start_anywhere(home.command());
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let serving = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = BufReader::new(stream);
        let request = read_message(&mut stream).unwrap();
        stream
            .get_mut()
            .write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\npaid")
            .unwrap();
        (request, stream)
    });
    assert_eq!(pay_over(&path, "k", "x-forwarded-for: 6.6.6.6\r\n").text(), "paid");
    let (request, _stream) = serving.join().unwrap();
    // Nobody has said who that is.
    assert_eq!(request.header("x-forwarded-for"), Some("unknown"));
    assert_eq!(request.header("forwarded"), Some("for=unknown;host=shop;proto=http"));
    assert!(pay_over(&path, "k", "").is_replay());
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();
    let lines = until("the lines", lines, |lines| lines.lines().count() == 2);
    assert!(lines.contains(" method=POST ") && !lines.contains("client="), "{lines}");
    gateway.signal(Signal::SIGTERM);
    assert!(gateway.wait().success());
    assert!(!path.exists());
}

#[test]
fn a_socket_that_a_killed_gateway_has_left_is_replaced_and_one_in_use_is_not() {
    let (home, upstream) = (Home::new(), Upstream::new());
    let path = on_unix(&home, &format!("http://{}", upstream.address()), "");
    upstream.serve();
    let (gateway, _) = Gateway::start_anywhere(home.command());
    let refused = home.command().output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("another process listens there"), "{said}");
    assert_eq!(pay_over(&path, "k", "").status(), 201);
    gateway.kill();
    assert!(path.exists());
    let (gateway, _) = Gateway::start_anywhere(home.command());
    assert_eq!(pay_over(&path, "k", "").status(), 201);
    // One that stands in its place is not its own.
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    gateway.signal(Signal::SIGTERM);
    assert!(gateway.wait().success());
    assert!(path.exists());
}

/// Starts a gateway as a service manager does: with sockets from descriptor 3 on.
const ACTIVATE: &str = r"
import os, socket, sys
names, variables, command = sys.argv[1], sys.argv[2].split(','), sys.argv[3:]
sockets = []
for name in names.split(':'):
    if name.startswith('/'):
        one = socket.socket(socket.AF_UNIX)
        one.bind(name)
    else:
        one = socket.socket()
        one.bind(('127.0.0.1', 0))
    one.listen(64)
    # Not where they belong yet: the next one may be there.
    os.dup2(one.fileno(), 60 + len(sockets), inheritable=False)
    sockets.append(one)
for at in range(len(sockets)):
    os.dup2(60 + at, 3 + at)
os.environ['LISTEN_FDS'] = str(len(sockets))
os.environ['LISTEN_PID'] = str(os.getpid())
os.environ['LISTEN_FDNAMES'] = variables[0].replace('+', ':')
os.execvp(command[0], command)
";

/// A gateway with these sockets (`tcp`, or a path, separated by colons), under these names.
fn activated(home: &Home, sockets: &str, names: &str) -> Command {
    let gateway = home.command();
    let mut command = Command::new("python3");
    command.args(["-c", ACTIVATE, sockets, &names.replace(':', "+")]);
    command.arg(gateway.get_program()).args(gateway.get_args());
    for (name, value) in gateway.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

#[test]
fn sockets_of_the_service_manager_are_used_by_their_names() {
    let (home, upstream) = (Home::new(), Upstream::new());
    // The addresses in the configuration are not bound.
    home.configure(upstream.address(), "");
    upstream.serve();
    let gateway = Gateway::start(activated(&home, "tcp:tcp", "admin:listen")).unwrap();
    assert_eq!(pay(gateway.address, "k", BODY).status(), 201);
    assert_eq!(Call::get(gateway.admin, "/readyz").status(), 200);
    let line = gateway.log_line("the socket of the service manager is used");
    assert!(line.contains("setting=\"listen\""), "{line}");
    gateway.signal(Signal::SIGTERM);
    assert!(gateway.wait().success());
}

#[test]
fn a_unix_socket_of_the_service_manager_stays_its_own() {
    let (home, upstream) = (Home::new(), Upstream::new());
    let path = on_unix(&home, &format!("http://{}", upstream.address()), "");
    upstream.serve();
    // By its address: systemd's own name for it says nothing.
    let sockets = path.display().to_string();
    let (gateway, _) = Gateway::start_anywhere(activated(&home, &sockets, "justonce.socket"));
    assert_eq!(pay_over(&path, "k", "").status(), 201);
    gateway.signal(Signal::SIGTERM);
    assert!(gateway.wait().success());
    assert!(path.exists());
}

#[test]
fn sockets_that_no_setting_is_for_are_an_error_that_names_them() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "");
    let refused = Gateway::start(activated(&home, "tcp:tcp", "listen:metrics")).err().unwrap();
    assert!(refused.contains("no setting is for: `metrics` (127.0.0.1:"), "{refused}");
    assert!(refused.contains("FileDescriptorName=listen"), "{refused}");
}

#[test]
fn the_service_manager_hears_when_the_gateway_serves_and_when_it_stops() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "");
    let manager = home.path().join("notify.sock");
    let heard = UnixDatagram::bind(&manager).unwrap();
    heard.set_read_timeout(Some(LIMIT)).unwrap();
    let mut command = home.command();
    command.env("NOTIFY_SOCKET", &manager);
    let gateway = Gateway::start(command).unwrap();
    let next = || {
        let mut bytes = [0; 256];
        let count = heard.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    assert_eq!(next(), "READY=1");
    gateway.signal(Signal::SIGUSR2);
    let line = gateway.log_line("the successor serves");
    let pid = line.split("pid=").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    // From the process that the service manager knows.
    assert_eq!(next(), format!("MAINPID={pid}\nREADY=1"));
    let pid = nix::unistd::Pid::from_raw(pid.parse().unwrap());
    nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(next(), "STOPPING=1");
}
