//! The payload of format version 1, as types of its own: the domain may change, these must not.
//! Durations and moments are milliseconds.

use serde::{Deserialize, Serialize};
use serde_bytes::Bytes as Raw;

#[derive(Serialize, Deserialize)]
pub(super) struct WireStored<'a> {
    #[serde(borrow)]
    pub(super) entry: WireEntry<'a>,
    #[serde(borrow)]
    pub(super) notes: Vec<WireNote<'a>>,
    pub(super) dropped: u32,
}

#[expect(clippy::large_enum_variant, reason = "it lives on the stack for one call")]
#[derive(Serialize, Deserialize)]
pub(super) enum WireEntry<'a> {
    #[serde(borrow)]
    Record(WireRecord<'a>),
    Tombstone {
        fence: u64,
        since: u64,
        until: u64,
    },
}

#[derive(Serialize, Deserialize)]
pub(super) struct WireRecord<'a> {
    pub(super) scope: &'a str,
    pub(super) key: &'a str,
    pub(super) fingerprint_version: u8,
    pub(super) fingerprint: [u8; 32],
    pub(super) created_at: u64,
    pub(super) fence: u64,
    pub(super) attempt: u32,
    pub(super) changed_at: u64,
    #[serde(borrow)]
    pub(super) state: WireState<'a>,
}

#[derive(Serialize, Deserialize)]
pub(super) enum WireState<'a> {
    InProgress {
        owner: &'a str,
        token: u128,
        claimed_at: u64,
        lease_until: u64,
        policy: WirePolicy,
        #[serde(borrow)]
        checkpoint: Option<WireCheckpoint<'a>>,
    },
    #[serde(borrow)]
    Completed(WireSettled<'a>),
    #[serde(borrow)]
    FailedForGood(WireSettled<'a>),
    FailedForNow {
        #[serde(borrow)]
        failure: WireOutcome<'a>,
        retry_at: u64,
        expires_at: u64,
        policy: WirePolicy,
        #[serde(borrow)]
        checkpoint: Option<WireCheckpoint<'a>>,
    },
    Unknown {
        reason: WireReason,
        owner: &'a str,
        policy: WirePolicy,
        #[serde(borrow)]
        checkpoint: Option<WireCheckpoint<'a>>,
    },
}

#[derive(Serialize, Deserialize)]
pub(super) struct WireSettled<'a> {
    #[serde(borrow)]
    pub(super) outcome: WireOutcome<'a>,
    pub(super) expires_at: u64,
    /// How long late arrivals are refused; nothing for never.
    pub(super) refuse: Option<u64>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct WireOutcome<'a> {
    pub(super) status: Option<u16>,
    #[serde(borrow)]
    pub(super) headers: Vec<(&'a str, &'a Raw)>,
    #[serde(borrow)]
    pub(super) body: WireBody<'a>,
}

#[derive(Serialize, Deserialize)]
pub(super) enum WireBody<'a> {
    #[serde(borrow)]
    Whole(&'a Raw),
    TooLarge(u64),
}

#[derive(Serialize, Deserialize)]
pub(super) struct WireCheckpoint<'a> {
    pub(super) name: &'a str,
    #[serde(borrow)]
    pub(super) data: &'a Raw,
    pub(super) number: u32,
}

#[derive(Serialize, Deserialize)]
pub(super) struct WirePolicy {
    pub(super) lease: u64,
    pub(super) lease_cap: u64,
    pub(super) on_lapsed: WireOnLapsed,
    pub(super) on_failure: WireOnFailure,
    /// Zero for no limit.
    pub(super) max_attempts: u32,
    pub(super) retention: u64,
    pub(super) refuse: Option<u64>,
}

#[derive(Serialize, Deserialize)]
pub(super) enum WireOnLapsed {
    Rerun,
    Resume,
    Hold,
}

#[derive(Serialize, Deserialize)]
pub(super) enum WireOnFailure {
    Replay,
    Release,
    Retry { first: u64, max: u64 },
}

#[derive(Serialize, Deserialize)]
pub(super) enum WireReason {
    Lapsed,
    AttemptsExhausted,
    TimedOut,
    Panicked,
    Dropped,
    Reported,
}

#[derive(Serialize, Deserialize)]
pub(super) struct WireNote<'a> {
    pub(super) at: u64,
    pub(super) fence: u64,
    #[serde(borrow)]
    pub(super) kind: WireKind<'a>,
}

#[derive(Serialize, Deserialize)]
pub(super) enum WireKind<'a> {
    Claimed(&'a str),
    TakenOver(&'a str),
    Checkpointed(&'a str),
    Completed,
    FailedForNow,
    FailedForGood,
    GivenUp(WireReason),
    Held(WireReason),
    Refused(WireRefused),
    Resolved { by: WireResolver, name: &'a str, how: WireHow, why: &'a str },
    Released,
    // From here on: format version 2.
    GivenUpBecause(WireReason, &'a str),
    HeldBecause(WireReason, &'a str),
}

#[derive(Serialize, Deserialize)]
pub(super) enum WireRefused {
    Complete,
    Fail,
    Release,
    Renew,
    Checkpoint,
    Abandon,
    Resolve,
}

#[derive(Serialize, Deserialize)]
pub(super) enum WireResolver {
    Probe,
    Callback,
    Operator,
}

#[derive(Serialize, Deserialize)]
pub(super) enum WireHow {
    Completed,
    Failed,
    Released,
}
