//! Columns of a row. Anything unexpected in them is a damaged record.

use justonce_core::StoreResult;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::error::damaged;
use crate::numbers::unsigned;

/// A column by its name.
pub(crate) fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> StoreResult<T> {
    row.try_get(name).map_err(|error| damaged(format!("{name}: {error}")))
}

/// A column that must not be NULL here.
pub(crate) fn needed<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> StoreResult<T> {
    column::<Option<T>>(row, name)?.ok_or_else(|| damaged(format!("{name} is missing")))
}

/// A number of records or bytes.
pub(crate) fn count(row: &Row, name: &str) -> StoreResult<u64> {
    unsigned(name, needed(row, name)?)
}
