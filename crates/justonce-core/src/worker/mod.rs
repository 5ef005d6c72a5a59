//! Background work in rounds: one loop for everything that is repeated.
//!
//! A [`Worker`] runs the rounds of some [`Rounds`] as its [`Schedule`] says, until it is stopped or
//! dropped. A round that fails or panics does not end it: the failure is counted, shows in
//! [`Worker::health`], and lengthens the next pause.
//!
//! ```
//! use justonce_core::worker::{Next, Schedule, Worker};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let ping = || async { Ok::<_, std::io::Error>(Next::Pause) };
//! // The default: no jitter, and the same pause after a failure.
//! let worker = Worker::start(Schedule::every("ping", Duration::from_secs(5)), ping);
//! assert!(worker.stop(Duration::from_secs(1)).await);
//! # }
//! ```

mod health;
mod running;
mod schedule;

pub use health::{RoundEnd, WorkerHealth, WorkerObserver};
pub use running::{Next, Rounds, Worker};
pub use schedule::Schedule;
