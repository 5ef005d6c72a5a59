//! Fences in the caller's tables.

use std::fmt;

use justonce_core::Fence;

/// A fence as a `bigint`, for a column of the caller's table.
///
/// The table keeps the fence of the last write of a row, and every update carries its own:
///
/// ```sql
/// UPDATE accounts SET cents = $1, fence = $2 WHERE name = $3 AND fence <= $2
/// ```
///
/// The update of an owner whose claim was taken over carries an old fence, so it changes no row,
/// however late it is. [`if_fence_holds`] turns that into an error. The trigger function
/// `guard_fence_1` of the schema checks statements that do not compare the fence themselves:
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

/// An update carried an old fence, or its row does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleFence;

impl fmt::Display for StaleFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no row was changed: a newer owner has written it, or it does not exist")
    }
}

impl std::error::Error for StaleFence {}
