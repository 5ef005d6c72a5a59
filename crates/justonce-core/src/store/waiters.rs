//! Those who wait for the end of a claim, in stores that keep claims in memory.

use std::fmt;
use std::sync::OnceLock;

use tokio::sync::Notify;

/// Those who wait for one thing to end: each gets what it ended with.
///
/// ```
/// use justonce_core::store::Waiters;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let waiters = Waiters::default();
/// let (first, second) = (waiters.ended(), waiters.ended());
/// waiters.end("done");
/// assert_eq!((first.await, second.await), (&"done", &"done"));
/// // Whoever comes late does not wait.
/// assert_eq!(waiters.ended().await, &"done");
/// # }
/// ```
pub struct Waiters<T> {
    end: OnceLock<T>,
    notify: Notify,
}

impl<T> Waiters<T> {
    /// It has ended: wakes all who wait. The first end counts.
    pub fn end(&self, with: T) {
        let _ = self.end.set(with);
        self.notify.notify_waiters();
    }

    /// Waits for the end.
    pub async fn ended(&self) -> &T {
        loop {
            // From now on no end is missed.
            let notified = self.notify.notified();
            if let Some(end) = self.end.get() {
                return end;
            }
            notified.await;
        }
    }
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self { end: OnceLock::new(), notify: Notify::new() }
    }
}

impl<T> fmt::Debug for Waiters<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiters").finish_non_exhaustive()
    }
}
