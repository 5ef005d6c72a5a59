//! What is judged, and what is repaired.

use std::time::Duration;

use justonce_core::{Policy, Scope};

/// What is judged. Nothing that is younger than the grace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Neither a record nor an effect that is younger is judged: it may not have reached the other
    /// side, and its owner may be at work. Longer than the lag of the books and than a third of the
    /// longest lease.
    pub grace: Duration,
    /// How long a record is there after its effect, at least: the shortest retention of these
    /// operations. An older effect without a record means nothing.
    pub remembered: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        let remembered = Policy::default().retention();
        Self { grace: Duration::from_secs(15 * 60), remembered }
    }
}

/// How records and effects are reconciled.
///
/// ```
/// use justonce_core::Scope;
/// use justonce_saga::{ReconcileSettings, Rules};
/// use std::time::Duration;
///
/// // The default: all records; unknown operations whose effect is there are completed, if the
/// // books can make an outcome; all else is reported.
/// let all = ReconcileSettings::new("ledger");
///
/// // Customised: one kind of operation. What has been unknown for a day and is not in the books
/// // is released: these books are complete, and nothing is under way for that long.
/// let charges = ReconcileSettings {
///     scope: Some(Scope::builder().operation("charge").build()?),
///     rules: Rules { grace: Duration::from_secs(3600), ..Rules::default() },
///     release_after: Some(Duration::from_secs(24 * 3600)),
///     ..ReconcileSettings::new("charges")
/// };
/// # Ok::<(), justonce_core::ScopeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconcileSettings {
    /// Who it is, in the timelines of the records that it resolves.
    pub name: String,
    /// Only records whose scope has all parts of this one. The books must list the effects of the
    /// same operations, or more.
    pub scope: Option<Scope>,
    /// What is judged.
    pub rules: Rules,
    /// Whether an unknown operation whose one effect is there is completed.
    pub complete: bool,
    /// How long an operation must have been unknown before it is released because no effect is
    /// there; never, if nothing. Releasing says that it never will take effect: what is on its way
    /// for longer than this would then happen twice.
    pub release_after: Option<Duration>,
    /// How many records, and how many effects, one page has at most.
    pub page: usize,
    /// How many records are read at once.
    pub at_once: usize,
}

impl ReconcileSettings {
    /// The defaults under this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            scope: None,
            rules: Rules::default(),
            complete: true,
            release_after: None,
            page: 500,
            at_once: 16,
        }
    }
}
