//! How a prober works.

use std::time::Duration;

use crate::policy::BackOff;
use crate::scope::Scope;

/// How a [`Prober`](super::Prober) works.
///
/// ```
/// use justonce_core::engine::ProberSettings;
/// use justonce_core::Scope;
/// use std::time::Duration;
///
/// // The default: everything that has been unknown for a minute.
/// let all = ProberSettings::new("books");
///
/// // Customised: one kind of operation, sooner.
/// let charges = ProberSettings {
///     scope: Some(Scope::builder().operation("charge").build()?),
///     after: Duration::from_secs(5),
///     ..ProberSettings::new("charges")
/// };
/// # Ok::<(), justonce_core::ScopeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ProberSettings {
    /// Its name in the timeline.
    pub name: String,
    /// Only operations whose scope has all parts of this one.
    pub scope: Option<Scope>,
    /// How long an operation must have been unknown before anybody is asked.
    pub after: Duration,
    /// How long an operation must have been unknown before *did not happen* counts. By then its
    /// owner must be gone, and nothing of it on its way any more: what is not there yet may still
    /// come.
    pub release_after: Duration,
    /// The pause between two rounds; the real one lies between half of it and all of it.
    pub every: Duration,
    /// How long after an unclear answer the same operation is asked about again.
    pub back_off: BackOff,
    /// How long one question may take.
    pub timeout: Duration,
    /// How many questions are under way at once.
    pub at_once: usize,
}

impl ProberSettings {
    /// The defaults under this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            scope: None,
            after: Duration::from_secs(60),
            // As long as a claim can be renewed by default: no owner works for longer.
            release_after: Duration::from_secs(15 * 60),
            every: Duration::from_secs(5),
            back_off: BackOff { first: Duration::from_secs(5), max: Duration::from_secs(600) },
            timeout: Duration::from_secs(10),
            at_once: 4,
        }
    }
}
