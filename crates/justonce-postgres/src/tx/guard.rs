//! The fence in the caller's own tables.

use std::fmt;

use justonce_core::Fence;

/// A fence as a `bigint`, for a column of the caller's own table.
///
/// The table keeps the fence of whoever wrote a row last, and every update says under which fence
/// it comes:
///
/// ```sql
/// UPDATE accounts SET cents = $1, fence = $2 WHERE name = $3 AND fence <= $2
/// ```
///
/// An owner whose claim was taken over comes with an old fence, so its update changes no row, how
/// late it may come. [`if_fence_holds`] turns that into an error. Where statements cannot be
/// trusted to ask, the trigger function `guard_fence_1` of the schema does it for them:
///
/// ```sql
/// CREATE TRIGGER guard BEFORE UPDATE ON accounts
///     FOR EACH ROW EXECUTE FUNCTION justonce.guard_fence_1();
/// ```
#[must_use]
pub fn fence_of(fence: Fence) -> i64 {
    i64::try_from(fence.get()).unwrap_or(i64::MAX)
}

/// Checks that a guarded update changed something.
///
/// # Errors
///
/// If it changed no row: a newer owner has written it.
pub const fn if_fence_holds(changed_rows: u64) -> Result<u64, StaleFence> {
    if changed_rows == 0 { Err(StaleFence) } else { Ok(changed_rows) }
}

/// An update came with an old fence, or its row is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleFence;

impl fmt::Display for StaleFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no row was changed: a newer owner has written it, or it is not there")
    }
}

impl std::error::Error for StaleFence {}
