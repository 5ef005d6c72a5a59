//! Where the program may be made to die.

use std::fmt;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The variable that names the point at which the program kills itself.
pub const VARIABLE: &str = "ORDERS_KILL_AT";

/// A point at which the program dies by SIGKILL, as if somebody had sent it just then; none, as a
/// rule. Nothing is flushed, no destructor runs, and nobody is told.
#[derive(Clone, Debug, Default)]
pub struct Stage(Option<String>);

impl Stage {
    /// As the variable says.
    #[must_use]
    pub fn from_environment() -> Self {
        Self(std::env::var(VARIABLE).ok())
    }

    /// The program has come to a point.
    pub async fn reached(&self, point: impl fmt::Display) {
        if self.0.as_ref().is_some_and(|deadly| *deadly == point.to_string()) {
            // If this fails nothing dies, and whoever waits for it says so.
            let _ = kill(Pid::this(), Signal::SIGKILL);
            std::future::pending::<()>().await;
        }
    }
}
