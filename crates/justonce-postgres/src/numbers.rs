//! Conversions to the signed numbers of PostgreSQL. Numbers above the limit become the limit.

use std::time::Duration;

use justonce_core::{Fence, StoreResult, Timestamp};

use crate::error::damaged;

pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn moment(timestamp: Timestamp) -> i64 {
    signed(timestamp.as_millis())
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// A fence for comparisons and notes. The upper half of all numbers, which no store gives, becomes
/// negative.
pub(crate) fn fence_number(fence: Fence) -> i64 {
    fence.get().cast_signed()
}

/// A number that cannot be negative.
pub(crate) fn unsigned(what: &str, number: i64) -> StoreResult<u64> {
    u64::try_from(number).map_err(|_| damaged(format!("{what} is {number}")))
}

/// A number that fits into 32 bits.
pub(crate) fn small(what: &str, number: i64) -> StoreResult<u32> {
    u32::try_from(number).map_err(|_| damaged(format!("{what} is {number}")))
}

pub(crate) fn timestamp(what: &str, number: i64) -> StoreResult<Timestamp> {
    Ok(Timestamp::from_millis(unsigned(what, number)?))
}

pub(crate) fn duration(what: &str, number: i64) -> StoreResult<Duration> {
    Ok(Duration::from_millis(unsigned(what, number)?))
}

pub(crate) fn fence(number: i64) -> StoreResult<Fence> {
    Ok(Fence::new(unsigned("a fence", number)?))
}
