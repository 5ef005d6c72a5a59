//! Looking into, counting and cleaning PostgreSQL.

use justonce_core::codec::encode_outcome;
use justonce_core::store::{Cursor, ListQuery, Maintenance, Page, Stats, SweepReport};
use justonce_core::{Outcome, RecordId, StateName, StoreError, StoreErrorKind, StoreResult};
use tokio_postgres::Row;

use crate::error::damaged;
use crate::numbers::timestamp;
use crate::open::PostgresStore;
use crate::read::{self, Part, count, needed};
use crate::step::held_in;

/// How many records one statement of a sweep changes at most: its locks are held for
/// milliseconds.
const SWEPT_A_STATEMENT: usize = 200;
/// How many records one page looks at, at most: it bounds the time a page takes.
const LOOKED_AT: i64 = 5000;
/// Up to this size a table is counted; a larger one is sampled.
const COUNTED_BYTES: u64 = 256 * 1024 * 1024;

impl Maintenance for PostgresStore {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        let db = &self.0.db;
        let after = query.after.map(|Cursor(id)| *id.as_bytes());
        let after: &[u8] = after.as_ref().map_or(&[], |id| id.as_slice());
        let state = query.state.map_or("", StateName::as_str);
        let empty = encode_outcome(&Outcome::empty());
        let rows = db.rows(&db.sql.list, &[&after, &state, &db.now(), &LOOKED_AT, &empty]).await?;
        page(query, &rows)
    }

    async fn stats(&self) -> StoreResult<Stats> {
        let db = &self.0.db;
        let size = db.one(&db.sql.size, &[]).await?;
        let bytes = count(&size, "bytes")?;
        let percent = sampled_percent(bytes);
        let empty = encode_outcome(&Outcome::empty());
        let rows = db.rows(&db.sql.stats, &[&percent, &empty]).await?;
        let mut stats = Stats::default();
        for row in &rows {
            let name: &str = needed(row, "state")?;
            let state = StateName::ALL.into_iter().find(|state| state.as_str() == name);
            let figures = state.and_then(|state| stats.of_mut(state));
            let figures = figures.ok_or_else(|| damaged(format!("its state is {name:?}")))?;
            figures.count = scaled(count(row, "count")?, percent);
            figures.bytes = scaled(count(row, "bytes")?, percent);
        }
        if percent < WHOLE {
            // What needs somebody's help is counted one by one.
            stats.unknown.count = count(&size, "unknown")?;
        }
        Ok(stats)
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        let db = &self.0.db;
        let mut report = SweepReport::default();
        let mut left = limit;
        while left > 0 && !report.more {
            let asked = left.min(SWEPT_A_STATEMENT);
            let portion = i64::try_from(asked).unwrap_or(i64::MAX);
            let row = db.one(&db.sql.sweep, &[&db.now(), &None::<&[u8]>, &portion]).await?;
            let before = report.changed();
            report.removed += count(&row, "o_removed")?;
            report.buried += count(&row, "o_buried")?;
            let held = read::column::<Option<&str>>(&row, "o_unknown")?.unwrap_or_default();
            report.held.extend(held_in(held).map(|(id, _)| id));
            let changed = usize::try_from(report.changed() - before).unwrap_or(usize::MAX);
            left = left.saturating_sub(changed);
            if count(&row, "o_due")? < asked as u64 {
                break;
            }
            // Others are at work on all that is due: they are not waited for.
            report.more = changed == 0 || left == 0;
        }
        report.more |= limit == 0;
        self.forget(limit).await?;
        Ok(report)
    }

    async fn ready(&self) -> StoreResult<()> {
        let db = &self.0.db;
        let row = db.one(&db.sql.ready, &[]).await?;
        let not_ready =
            |message: &str| Err(StoreError::not_applied(StoreErrorKind::Unavailable, message));
        if row.try_get(0).map_err(damaged)? {
            not_ready("PostgreSQL takes no writes: it is a standby, or set to read only")
        } else if row.try_get(1).map_err(damaged)? {
            Ok(())
        } else {
            not_ready("the schema is not there: `justonce migrate` makes it")
        }
    }
}

impl PostgresStore {
    /// Forgets messages of consumers whose retention is over, in portions as well.
    async fn forget(&self, limit: usize) -> StoreResult<()> {
        let db = &self.0.db;
        let mut left = limit;
        while left > 0 {
            let asked = left.min(SWEPT_A_STATEMENT);
            let portion = i64::try_from(asked).unwrap_or(i64::MAX);
            let row = db.one(&db.sql.forget, &[&db.now(), &portion]).await?;
            if row.try_get::<_, i64>(0).map_err(damaged)? < portion {
                break;
            }
            left -= asked;
        }
        Ok(())
    }
}

const WHOLE: f32 = 100.0;

/// Which part of a table of this size is looked at.
#[allow(clippy::cast_precision_loss, reason = "a percentage needs no more")]
fn sampled_percent(bytes: u64) -> f32 {
    if bytes <= COUNTED_BYTES { WHOLE } else { WHOLE * COUNTED_BYTES as f32 / bytes as f32 }
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate of something that is not negative"
)]
fn scaled(figure: u64, percent: f32) -> u64 {
    if percent >= WHOLE {
        return figure;
    }
    (figure as f64 * f64::from(WHOLE / percent)) as u64
}

fn page(query: &ListQuery, rows: &[Row]) -> StoreResult<Page> {
    let mut page = Page::default();
    let mut last: Option<RecordId> = None;
    for row in rows {
        if page.records.len() == query.page_size() {
            page.next = last.map(Cursor);
            return Ok(page);
        }
        let id = read::id(row)?;
        let now = timestamp("listed_at", needed(row, "listed_at")?)?;
        page.records.extend(query.matches(id, &read::entry(row, Part::Summary)?, now));
        last = Some(id);
    }
    let ended = match rows.first() {
        None => true,
        Some(row) => needed::<i64>(row, "looked_at")? < LOOKED_AT,
    };
    page.next = last.filter(|_| !ended).map(Cursor);
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_tables_are_sampled() {
        assert_eq!(scaled(17, sampled_percent(COUNTED_BYTES)), 17);
        let percent = sampled_percent(COUNTED_BYTES * 10);
        assert!((9.0..11.0).contains(&percent), "{percent}");
        assert_eq!(scaled(17, percent), 170);
    }
}
