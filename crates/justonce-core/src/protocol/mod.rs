//! The rules of the protocol, as pure functions on values: no time, no store, no task.
//!
//! [`transition`] decides what one [`Action`] does to a record; [`state_at`] says what time alone
//! does to it; [`Decision`] is what a store carries out.
//!
//! The enums of the protocol are exhaustive on purpose: a store that does not know a new action or
//! state must fail to compile, not to run.

mod claim_end;
mod decision;
mod record;
mod step;
mod timeline;
mod transition;
mod view;

pub use claim_end::ClaimEnd;
pub use decision::{Change, Decision, ends_claim, is_running};
pub use record::{
    AwaitingRetry, Entry, Failed, InProgress, Record, Settled, State, StateName, Stored, Subject,
    Tombstone, Unknown, UnknownReason,
};
pub use step::{
    Abandonment, Action, Answer, Begin, Busy, BusyWhy, Claimed, Existing, Failure, FailureKind,
    Lost, Replay, Resolution, Resolve, Step, SweepDone, UnknownSince,
};
pub use timeline::{
    HowResolved, MAX_NOTE_TEXT_BYTES, MAX_NOTES, Note, NoteKind, RefusedStep, Resolver, Timeline,
    Why,
};
pub use transition::transition;
pub use view::state_at;
