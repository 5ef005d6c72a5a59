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
/// // Customised: look every second, drive four at once, leave stuck sagas to the operator.
/// let eager = CompleterSettings {
///     every: Duration::from_secs(1),
///     at_once: 4,
///     retry_stuck: None,
///     ..CompleterSettings::default()
/// };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleterSettings {
    /// The pause between two rounds. Each is drawn between half of it and all of it, so that nodes
    /// that were started together do not look together.
    pub every: Duration,
    /// Records that changed within this time are left alone: somebody is at work. Owners renew at
    /// a third of their lease, so this should be no less.
    pub unchanged_for: Duration,
    /// How many records of each kind one round looks at. The next round goes on where this one
    /// ended, so that no kind and no record waits for ever.
    pub page: usize,
    /// How many operations are driven at once.
    pub at_once: usize,
    /// How long after a try a stuck saga is tried again; never, if nothing.
    pub retry_stuck: Option<Duration>,
}

impl Default for CompleterSettings {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(5),
            unchanged_for: Duration::from_secs(10),
            page: 100,
            at_once: 16,
            retry_stuck: Some(Duration::from_secs(300)),
        }
    }
}
