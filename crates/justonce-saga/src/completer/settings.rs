//! How the completer works.

use std::time::Duration;

/// How the completer works.
///
/// ```
/// use justonce_saga::CompleterSettings;
/// use std::time::Duration;
///
/// // The default.
/// let default = CompleterSettings::default();
/// // Customised: look every second, drive four at once, leave stuck sagas to the operator, and
/// // park what has failed five times.
/// let eager = CompleterSettings {
///     every: Duration::from_secs(1),
///     at_once: 4,
///     retry_stuck: None,
///     park_after: 5,
///     ..CompleterSettings::default()
/// };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleterSettings {
    /// The pause between two rounds. Each is drawn between half of it and all of it, so that nodes
    /// that were started together do not look together. A round itself waits no longer than this
    /// for what it drives: what takes longer goes on beside the next rounds.
    pub every: Duration,
    /// Records that changed within this time are left alone: their owner is at work. Owners renew
    /// at a third of their lease, so this should be no less.
    pub unchanged_for: Duration,
    /// How many operations of each kind one round takes up. The next round goes on looking where
    /// this one ended, so that no kind and no record waits for ever.
    pub page: usize,
    /// How many operations are driven at once. Those that failed before have half of the places at
    /// most, so that they delay no fresh ones.
    pub at_once: usize,
    /// How long one drive may take. Then it is given up, and its place is for another; the
    /// operation stays as it is saved. This should be no less than the cap of the lease.
    pub drive_timeout: Duration,
    /// How long after a drive a stuck saga is tried again; never, if nothing. The pause doubles
    /// with each drive that fails, up to an hour.
    pub retry_stuck: Option<Duration>,
    /// After how many drives in a row that failed an operation is parked: it is not driven on
    /// before a retry ([`retry`](crate::retry)). Each claim counts that ended no step, also one
    /// whose process died. Operations with a limit of attempts of their own are left to that.
    pub park_after: u32,
}

impl Default for CompleterSettings {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(5),
            unchanged_for: Duration::from_secs(10),
            page: 100,
            at_once: 16,
            drive_timeout: Duration::from_secs(20 * 60),
            retry_stuck: Some(Duration::from_secs(300)),
            park_after: 20,
        }
    }
}
