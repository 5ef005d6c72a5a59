//! Reconciliation: records are compared with the effects in the books of another system.

mod compare;
mod effects;
mod reconciler;
mod report;
mod settings;

pub use compare::{Disagreement, Finding, ObservedRecord, compare};
pub use effects::{About, BookedEffect, BoxError, EffectPage, Effects};
pub use reconciler::{ReconcilePosition, Reconciler};
pub use report::{ReconcileError, ReconcileReport, Remedy};
pub use settings::{ReconcileSettings, Rules};
