//! What the judge says.

use std::fmt;

/// What a policy guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// An operation takes effect once or, if it became unknown, perhaps never: `hold`.
    AtMostOnce,
    /// An operation that was begun takes effect, perhaps again if its owner stopped:
    /// `rerun`. Once its outcome has been replayed, never again.
    AtLeastOnce,
}

/// What is wrong with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OffenceKind {
    /// It took effect more than once.
    Twice,
    /// It took effect after its outcome had been replayed.
    AfterReplay,
    /// It took effect although no request asked for it, or although every request that could have
    /// been executed was refused.
    Unasked,
    /// It was acknowledged with an answer that the service had not given by then.
    Invented,
    /// Two replies acknowledged it with different answers.
    TwoOutcomes,
    /// It was acknowledged, and a request that was sent later found something else.
    Forgotten,
    /// A reply that no client expects.
    Surprise,
    /// The history itself is impossible: a reply without its request, or a second one.
    Disorder,
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offence {
    /// Of which operation.
    pub operation: String,
    /// What.
    pub kind: OffenceKind,
    /// What was seen.
    pub detail: String,
}

/// How many operations ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// All operations.
    pub operations: u64,
    /// All requests.
    pub requests: u64,
    /// All effects.
    pub effects: u64,
    /// Operations that took effect more than once.
    pub repeated: u64,
    /// Operations that were acknowledged.
    pub acknowledged: u64,
    /// Operations whose last reply is that they are unknown.
    pub unknown: u64,
    /// Operations with neither: their clients gave up.
    pub open: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What must not be; nothing if all is well.
    pub offences: Vec<Offence>,
    /// What was looked at.
    pub figures: Figures,
}

impl Verdict {
    /// Whether the guarantee was kept.
    #[must_use]
    pub const fn is_fine(&self) -> bool {
        self.offences.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        let Figures { operations, requests, effects, repeated, acknowledged, unknown, open } =
            self.figures;
        write!(
            f,
            "{operations} operations, {requests} requests, {effects} effects, {repeated} repeated, \
             {acknowledged} acknowledged, {unknown} unknown, {open} open, {} offences",
            self.offences.len()
        )?;
        for Offence { operation, kind, detail } in self.offences.iter().take(SHOWN) {
            write!(f, "\n  {operation}: {kind:?}: {detail}")?;
        }
        Ok(())
    }
}
