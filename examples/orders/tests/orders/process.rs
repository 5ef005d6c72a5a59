//! One process of the example.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use justonce_orders::stage::VARIABLE;

/// How long anything in these tests may take before it counts as stuck.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// The number of SIGKILL.
const SIGKILL: i32 = 9;

/// A process that listens. It ends with its handle, and with the test, however that ends.
pub(crate) struct Process {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    lines: Receiver<String>,
}

impl Process {
    /// Starts it and waits until it listens. It may be made to die at a point.
    pub(crate) fn start(arguments: &[String], dies_at: Option<&str>) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_orders")]).args(arguments);
        command.env_remove(VARIABLE);
        if let Some(point) = dies_at {
            command.env(VARIABLE, point);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut this = Self { child, address: SocketAddr::from(([0, 0, 0, 0], 0)), lines };
        let line = this.said("listening on http://");
        this.address = line.trim_start_matches("listening on http://").parse().unwrap();
        this
    }

    /// The next line that it prints with this beginning.
    pub(crate) fn said(&self, beginning: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(LIMIT);
            let line = line.unwrap_or_else(|_| panic!("it never said {beginning:?}"));
            if line.starts_with(beginning) {
                return line;
            }
        }
    }

    /// Waits for its death by SIGKILL.
    pub(crate) fn dies(mut self) {
        assert_eq!(self.child.wait().unwrap().signal(), Some(SIGKILL));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that is dead already needs no killing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
