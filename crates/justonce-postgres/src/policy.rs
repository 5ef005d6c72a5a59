//! A policy as columns of a row.

use std::num::NonZeroU32;
use std::sync::Arc;

use justonce_core::{AfterRetention, BackOff, OnFailure, OnLapsed, Policy, StoreResult};
use tokio_postgres::Row;

use crate::error::damaged;
use crate::numbers::{duration, millis, small};
use crate::row::{column, needed};

/// A policy as parameters of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyColumns {
    pub(crate) lease: i64,
    pub(crate) lease_cap: i64,
    pub(crate) on_lapsed: &'static str,
    pub(crate) on_failure: &'static str,
    pub(crate) back_off_first: Option<i64>,
    pub(crate) back_off_max: Option<i64>,
    pub(crate) max_attempts: Option<i64>,
    pub(crate) retention: i64,
    pub(crate) refuse: Option<i64>,
}

impl PolicyColumns {
    pub(crate) fn of(policy: &Policy) -> Self {
        let (on_failure, back_off) = match policy.on_failure() {
            OnFailure::Replay => ("replay", None),
            OnFailure::Release => ("release", None),
            OnFailure::Retry(back_off) => ("retry", Some(back_off)),
        };
        Self {
            lease: millis(policy.lease()),
            lease_cap: millis(policy.lease_cap()),
            on_lapsed: match policy.on_lapsed() {
                OnLapsed::Rerun => "rerun",
                OnLapsed::Resume => "resume",
                OnLapsed::Hold => "hold",
            },
            on_failure,
            back_off_first: back_off.map(|back_off| millis(back_off.first)),
            back_off_max: back_off.map(|back_off| millis(back_off.max)),
            max_attempts: policy.max_attempts().map(|max| i64::from(max.get())),
            retention: millis(policy.retention()),
            refuse: match policy.after_retention() {
                AfterRetention::New => None,
                AfterRetention::Refuse(life) => Some(millis(life)),
            },
        }
    }
}

/// What happens after the retention of a row.
pub(crate) fn after_retention(row: &Row) -> StoreResult<AfterRetention> {
    Ok(match column::<Option<i64>>(row, "refuse")? {
        None => AfterRetention::New,
        Some(life) => AfterRetention::Refuse(duration("refuse", life)?),
    })
}

/// The policy of a row.
pub(crate) fn policy(row: &Row) -> StoreResult<Arc<Policy>> {
    let time = |name| duration(name, needed(row, name)?);
    let on_lapsed: &str = needed(row, "on_lapsed")?;
    let on_failure: &str = needed(row, "on_failure")?;
    let max_attempts = match column::<Option<i64>>(row, "max_attempts")? {
        None => None,
        Some(max) => {
            let max = NonZeroU32::new(small("max_attempts", max)?);
            Some(max.ok_or_else(|| damaged("max_attempts is 0"))?)
        }
    };
    let builder = Policy::builder()
        .lease(time("lease")?)
        .lease_cap(time("lease_cap")?)
        .on_lapsed(match on_lapsed {
            "rerun" => OnLapsed::Rerun,
            "resume" => OnLapsed::Resume,
            "hold" => OnLapsed::Hold,
            other => return Err(damaged(format!("on_lapsed is {other:?}"))),
        })
        .on_failure(match on_failure {
            "replay" => OnFailure::Replay,
            "release" => OnFailure::Release,
            "retry" => OnFailure::Retry(BackOff {
                first: time("back_off_first")?,
                max: time("back_off_max")?,
            }),
            other => return Err(damaged(format!("on_failure is {other:?}"))),
        })
        .max_attempts(max_attempts)
        .retention(time("retention")?)
        .after_retention(after_retention(row)?);
    builder.build().map(Arc::new).map_err(damaged)
}
