//! What the tests of restarts begin with.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::gateway::stage::{BODY, started};
use crate::support::client::Call;
use crate::support::process::{Gateway, Home};
use crate::support::upstream::{Connection, Upstream};

/// A process that a gateway has started. It is ended with the test.
pub(crate) struct Successor(Pid);

impl Successor {
    /// The one that this line of the log is about.
    pub(crate) fn of(line: &str) -> Self {
        let pid = line.split("pid=").nth(1).expect("a number").split_whitespace().next().unwrap();
        Self(Pid::from_raw(pid.parse().unwrap()))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.0, signal).unwrap();
    }

    pub(crate) fn is_alive(&self) -> bool {
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
pub(crate) fn restarted(gateway: &Gateway) -> Successor {
    gateway.signal(Signal::SIGUSR2);
    Successor::of(&gateway.log_line("the successor serves"))
}

/// A gateway that is being restarted, with an operation that has begun since and a connection that
/// rests: its client has not heard of the restart yet, so new connections are accepted for a while.
pub(crate) struct Restarting {
    pub(crate) home: Home,
    pub(crate) upstream: Upstream,
    pub(crate) gateway: Gateway,
    pub(crate) running: Call,
    pub(crate) connection: Connection,
}

impl Restarting {
    pub(crate) fn start(more: &str) -> Self {
        let (home, upstream, gateway) = started(more);
        let mut rests = Call::pay(gateway.address, "rests", BODY);
        let mut connection = upstream.accept();
        connection.read();
        connection.answer("201 Created", &[], b"paid");
        assert_eq!(rests.answer().status(), 201);
        gateway.signal(Signal::SIGUSR2);
        gateway.log_line("clients are told to come back");
        let running = Call::pay(gateway.address, "running", BODY);
        connection.read();
        gateway.log_line("new connections wait");
        drop(rests);
        Self { home, upstream, gateway, running, connection }
    }
}
