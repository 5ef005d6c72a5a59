//! The worlds that are explored: one promise each, a few workers, a few calls, a little time.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::{
    AfterRetention, BackOff, Begin, Checkpoint, Fingerprint, Key, OnFailure, OnLapsed, Outcome,
    Owner, Policy, PolicyBuilder, Scope, Token,
};

use super::sights::Sight;
use crate::world::{Bounds, Point};

/// The model's clock moves by this: every duration is a few of them, so that each moment is met
/// from both sides.
pub(crate) const TICK: Duration = Duration::from_millis(10);
const LEASE: Duration = Duration::from_millis(20);
const LEASE_CAP: Duration = Duration::from_millis(30);
const RETENTION: Duration = Duration::from_millis(20);
const TOMBSTONE: Duration = Duration::from_millis(20);
const BACK_OFF: BackOff =
    BackOff { first: Duration::from_millis(10), max: Duration::from_millis(10) };

/// A world to explore: what is promised, and how much may happen in it.
#[derive(Clone, Debug)]
pub struct Setup {
    pub(crate) policy: Arc<Policy>,
    pub(crate) begin: Begin,
    pub(crate) other: Fingerprint,
    pub(crate) ready: Checkpoint,
    pub(crate) paid: Checkpoint,
    pub(crate) found: Outcome,
    pub(crate) failure: Outcome,
    pub(crate) bounds: Bounds,
    pub(crate) renews: bool,
    pub(crate) saves: bool,
    pub(crate) fails: bool,
    pub(crate) sights: &'static [Sight],
}

/// Why a world cannot be built; only a defect of the model can cause it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupError(String);

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the model's world cannot be built: {}", self.0)
    }
}

impl std::error::Error for SetupError {}

fn refused(error: impl fmt::Display) -> SetupError {
    SetupError(error.to_string())
}

fn policy(on_lapsed: OnLapsed) -> PolicyBuilder {
    Policy::builder()
        .lease(LEASE)
        .lease_cap(LEASE_CAP)
        .on_lapsed(on_lapsed)
        .on_failure(OnFailure::Replay)
        .max_attempts(None)
        .retention(RETENTION)
}

impl Setup {
    fn new(
        policy: PolicyBuilder,
        bounds: Bounds,
        sights: &'static [Sight],
    ) -> Result<Self, SetupError> {
        let policy = Arc::new(policy.build().map_err(refused)?);
        let scope = Scope::global();
        let begin = Begin {
            fingerprint: Fingerprint::of(&scope, b"pay 5"),
            key: Key::client("k").map_err(refused)?,
            policy: Arc::clone(&policy),
            owner: Owner::new("w"),
            token: Token(0),
            checkpoint: None,
            scope,
        };
        Ok(Self {
            other: Fingerprint::of(&begin.scope, b"pay 6"),
            ready: Checkpoint::new("ready", "").map_err(refused)?,
            paid: Checkpoint::new("paid", "").map_err(refused)?,
            found: Outcome::bytes("found"),
            failure: Outcome::bytes("declined"),
            policy,
            begin,
            bounds,
            renews: false,
            saves: false,
            fails: false,
            sights,
        })
    }

    /// The checkpoint as a handler saves it, without a number.
    pub(crate) const fn checkpoint(&self, point: Point) -> Option<&Checkpoint> {
        match point {
            Point::Start => None,
            Point::Ready => Some(&self.ready),
            Point::Paid => Some(&self.paid),
        }
    }

    /// How far a handler had come when it saved this, whatever its number.
    pub(crate) fn point(&self, saved: Option<&Checkpoint>) -> Point {
        match saved {
            None => Point::Start,
            Some(saved) if saved.name() == self.ready.name() => Point::Ready,
            Some(_) => Point::Paid,
        }
    }

    /// The same world with other bounds.
    #[must_use]
    pub fn within(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// One worker under `hold`, for a look at the machinery.
    ///
    /// # Errors
    ///
    /// Never, unless the model itself is wrong.
    pub fn tiny() -> Result<Self, SetupError> {
        let bounds = Bounds { workers: 1, calls: 2, delays: 0, outages: 1, ticks: 3 };
        Self::new(policy(OnLapsed::Hold), bounds, &[Sight::Stored, Sight::Unknown])
    }

    /// `hold` with three workers at once, for a shorter time.
    ///
    /// # Errors
    ///
    /// Never, unless the model itself is wrong.
    pub fn hold_among_three() -> Result<Self, SetupError> {
        let bounds = Bounds { workers: 3, calls: 3, delays: 1, outages: 1, ticks: 2 };
        Ok(Self::hold()?.within(bounds))
    }

    /// `hold`: at most once.
    ///
    /// # Errors
    ///
    /// Never, unless the model itself is wrong.
    pub fn hold() -> Result<Self, SetupError> {
        let bounds = Bounds { workers: 2, calls: 3, delays: 1, outages: 1, ticks: 3 };
        let sights = &[
            Sight::Stored,
            Sight::Replayed,
            Sight::ReplyLost,
            Sight::Orphan,
            Sight::Unknown,
            Sight::Resolved,
            Sight::LateOwner,
            Sight::LateRequest,
            Sight::Refused,
            Sight::Forgettable,
            Sight::NewAfterRetention,
            Sight::Freed,
            Sight::HeldUnseen,
        ];
        let setup = Self::new(policy(OnLapsed::Hold), bounds, sights)?;
        Ok(Self { renews: true, ..setup })
    }

    /// `hold` whose failures are retried after a back-off.
    ///
    /// # Errors
    ///
    /// Never, unless the model itself is wrong.
    pub fn hold_and_retry() -> Result<Self, SetupError> {
        let bounds = Bounds { workers: 2, calls: 2, delays: 1, outages: 1, ticks: 3 };
        let sights = &[
            Sight::Stored,
            Sight::Unknown,
            Sight::Waiting,
            Sight::FailedForGood,
            Sight::Resolved,
            Sight::Refused,
            Sight::LateRequest,
        ];
        let policy = policy(OnLapsed::Hold).on_failure(OnFailure::Retry(BACK_OFF));
        let setup = Self::new(policy, bounds, sights)?;
        Ok(Self { fails: true, ..setup })
    }

    /// `rerun` without a limit of attempts; passing failures free the key.
    ///
    /// # Errors
    ///
    /// Never, unless the model itself is wrong.
    pub fn rerun() -> Result<Self, SetupError> {
        let bounds = Bounds { workers: 2, calls: 2, delays: 1, outages: 1, ticks: 3 };
        let sights = &[
            Sight::Stored,
            Sight::Replayed,
            Sight::ReplyLost,
            Sight::Orphan,
            Sight::TakenOver,
            Sight::RanTwice,
            Sight::Refused,
            Sight::LateRequest,
            Sight::Forgettable,
            Sight::NewAfterRetention,
            Sight::GivenBack,
        ];
        let policy = policy(OnLapsed::Rerun).on_failure(OnFailure::Release);
        let setup = Self::new(policy, bounds, sights)?;
        Ok(Self { renews: true, fails: true, ..setup })
    }

    /// `resume`, with a checkpoint before the effect and one after it.
    ///
    /// # Errors
    ///
    /// Never, unless the model itself is wrong.
    pub fn resume() -> Result<Self, SetupError> {
        Self::saving(
            OnLapsed::Resume,
            1,
            &[
                Sight::Stored,
                Sight::Replayed,
                Sight::TakenOver,
                Sight::HandedOver,
                Sight::Refused,
                Sight::LateRequest,
                Sight::GivenBack,
                Sight::LateCopy,
            ],
        )
    }

    /// `resume` with one worker at a time and three calls: what is given back is claimed again.
    ///
    /// # Errors
    ///
    /// Never, unless the model itself is wrong.
    pub fn resume_again() -> Result<Self, SetupError> {
        let bounds = Bounds { workers: 1, calls: 3, delays: 1, outages: 0, ticks: 3 };
        let sights = &[
            Sight::Stored,
            Sight::HandedOver,
            Sight::GivenBack,
            Sight::LateCopy,
            Sight::LateRequest,
        ];
        Ok(Self { sights, ..Self::resume()?.within(bounds) })
    }

    /// `rerun` whose handlers save checkpoints that are never used.
    ///
    /// # Errors
    ///
    /// Never, unless the model itself is wrong.
    pub fn rerun_and_save() -> Result<Self, SetupError> {
        Self::saving(
            OnLapsed::Rerun,
            0,
            &[Sight::Stored, Sight::TakenOver, Sight::RanTwice, Sight::Refused],
        )
    }

    fn saving(
        on_lapsed: OnLapsed,
        delays: u8,
        sights: &'static [Sight],
    ) -> Result<Self, SetupError> {
        let bounds = Bounds { workers: 2, calls: 2, delays, outages: 1, ticks: 3 };
        let setup = Self::new(policy(on_lapsed), bounds, sights)?;
        Ok(Self { saves: true, ..setup })
    }

    /// `resume` with a back-off and a limit of two attempts.
    ///
    /// # Errors
    ///
    /// Never, unless the model itself is wrong.
    pub fn retry() -> Result<Self, SetupError> {
        let bounds = Bounds { workers: 2, calls: 2, delays: 1, outages: 1, ticks: 3 };
        let sights = &[
            Sight::Stored,
            Sight::Waiting,
            Sight::FailedForGood,
            Sight::Exhausted,
            Sight::Resolved,
            Sight::HandedOver,
            Sight::Refused,
            Sight::LateRequest,
            Sight::GivenBack,
        ];
        let policy = policy(OnLapsed::Resume)
            .on_failure(OnFailure::Retry(BACK_OFF))
            .max_attempts(NonZeroU32::new(2));
        let setup = Self::new(policy, bounds, sights)?;
        Ok(Self { saves: true, fails: true, ..setup })
    }

    /// `rerun` that refuses late arrivals after the retention.
    ///
    /// # Errors
    ///
    /// Never, unless the model itself is wrong.
    pub fn tombstone() -> Result<Self, SetupError> {
        let bounds = Bounds { workers: 2, calls: 2, delays: 1, outages: 1, ticks: 4 };
        let sights = &[
            Sight::Stored,
            Sight::Replayed,
            Sight::Buried,
            Sight::Expired,
            Sight::Refused,
            Sight::NewAfterRetention,
        ];
        let policy = policy(OnLapsed::Rerun).after_retention(AfterRetention::Refuse(TOMBSTONE));
        Self::new(policy, bounds, sights)
    }
}
