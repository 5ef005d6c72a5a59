//! Operations of many steps: phases that resume, sagas that end entirely done or entirely undone,
//! and a completer for those whose owner died.
//!
//! - [`Phases`]: an operation as a sequence of named phases. A phase that is done does not run
//!   again; after a crash its saved result is handed over, typed.
//! - [`Saga`]: steps with compensations. It ends with all steps done, or with all that was done
//!   undone, and the outcome is replayed for duplicates.
//! - [`Guard`]: a write that arrives late never follows a newer one. [`Conditional`]: what has not
//!   changed since the last time is not done again.
//! - [`Completer`]: finds operations whose owner is gone, on any number of nodes, and drives them
//!   on.
//! - [`Reconciler`]: compares records with the effects in the books of another system, repairs what
//!   it may.
//!
//! All of it is one operation of the engine under `resume`, whose one checkpoint holds what is
//! saved: the input from the start, and what became of each phase or step. No rule of the protocol
//! is here; what a saga does next is one pure function, [`next`].
//!
//! **A step whose result was not saved before a crash runs again, with the same key.** What it
//! calls must recognise a repetition by the key; that is what the key is for. Only what is written
//! in one transaction with the checkpoint ([`PhaseRun::phase_within`]) takes effect exactly
//! once by itself.

mod completer;
mod endless;
mod guard;
mod phases;
mod reconcile;
mod saga;
mod saved;

pub use completer::{
    Completer, CompleterSettings, DriveEnd, Driver, Progress, Round, Stuck, stuck,
};
pub use guard::{Conditional, Guard, GuardError, IfChanged, Written};
pub use phases::{
    Journal, MAX_NAME_BYTES, MAX_PHASES, PhaseRun, Phases, PhasesError, ShapeChanged, Within,
};
pub use reconcile::{
    About, BookedEffect, BoxError, Disagreement, EffectPage, Effects, Finding, ObservedRecord,
    ReconcileError, ReconcilePosition, ReconcileReport, ReconcileSettings, Reconciler, Remedy,
    Rules, compare,
};
pub use saga::{
    Call, End, Event, InvalidSaga, Log, LoggedStep, Mark, Next, PlanChanged, PlannedStep, Retried,
    RolledBack, Saga, SagaBuilder, SagaEnd, SagaError, SagaRan, SagaState, SagaStep, SeenSaga,
    StepError, StuckSaga, Tries, Unsaved, next, retry,
};
