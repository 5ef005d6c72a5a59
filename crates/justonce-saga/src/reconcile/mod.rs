//! Reconciliation: records are compared with the effects that somebody else has in the books.

mod compare;
mod effects;
mod report;
mod run;
mod settings;

pub use compare::{Disagreement, Finding, Seen, compare};
pub use effects::{About, BoxError, Effect, EffectPage, Effects};
pub use report::{ReconcileError, ReconcileReport, Remedy};
pub use run::{Place, Reconciler};
pub use settings::{ReconcileSettings, Rules};
