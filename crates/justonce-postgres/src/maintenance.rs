//! Looking into, counting and cleaning PostgreSQL.

use justonce_core::store::{Cursor, Health, ListQuery, Maintenance, Page, Stats, SweepReport};
use justonce_core::{Effect, RecordId, StateName, StoreError, StoreErrorKind, StoreResult};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::damaged;
use crate::numbers::{millis, timestamp};
use crate::open::PostgresStore;
use crate::read::{self, Part, count, needed};
use crate::step::held_in;

/// How many records one statement of a sweep changes at most: its locks are held for
/// milliseconds.
const SWEPT_A_STATEMENT: usize = 200;
/// How many damaged records one sweep passes by at most: then something is wrong with all of them.
const PASSED_BY: usize = 1000;
/// How many records one page looks at, at most: it bounds the time a page takes.
const LOOKED_AT: usize = 5000;
/// How many records are looked at for each that is asked for, where not all of them will do.
const LOOKED_AT_FOR_ONE: usize = 50;
/// The states whose records somebody may have to look after.
const COUNTED_ONE_BY_ONE: [StateName; 4] =
    [StateName::Unknown, StateName::InProgress, StateName::Failed, StateName::Released];
/// Up to this size a table is counted; of a larger one as much is looked at, and the rest is
/// estimated: what it costs does not grow with the table.
const COUNTED_BYTES: u64 = 4 * 1024 * 1024;
/// Up to so many records that somebody may have to look after are counted one by one.
const COUNTED_EACH: i64 = 10_000;

impl Maintenance for PostgresStore {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        let db = &self.0.db;
        let after = query.after.map(|Cursor(id)| *id.as_bytes());
        let after: &[u8] = after.as_ref().map_or(&[], |id| id.as_slice());
        let (now, count) = (db.now(), looked_at(query));
        let unchanged = query.unchanged_for.map(millis);
        let page: [&(dyn ToSql + Sync); 4] = [&after, &now, &count, &unchanged];
        let rows = match query.state {
            Some(StateName::Unknown) => db.rows(&db.sql.list_unknown, &page).await?,
            Some(StateName::InProgress) => db.rows(&db.sql.list_in_progress, &page).await?,
            Some(StateName::Failed | StateName::Released) => {
                db.rows(&db.sql.list_failed, &page).await?
            }
            state => {
                let state = state.map_or("", StateName::as_str);
                db.rows(&db.sql.list, &[&after, &now, &count, &unchanged, &state]).await?
            }
        };
        self.page(query, &rows, count)
    }

    async fn stats(&self) -> StoreResult<Stats> {
        let db = &self.0.db;
        let size = db.read_one(&db.sql.size, &[&COUNTED_EACH]).await?;
        let percent = sampled_percent(count(&size, "bytes")?);
        let rows = db.rows(&db.sql.stats, &[&percent]).await?;
        let mut stats = Stats::default();
        for row in &rows {
            let name: &str = needed(row, "state")?;
            let state = StateName::ALL.into_iter().find(|state| state.as_str() == name);
            // What has no state that we know is found, and named, by whoever lists it.
            if let Some(figures) = state.and_then(|state| stats.of_mut(state)) {
                figures.count = scaled(count(row, "count")?, percent);
                figures.bytes = scaled(count(row, "bytes")?, percent);
            }
        }
        if percent < WHOLE {
            // What needs somebody's help is counted one by one; what failed and what was released
            // are counted together up to the limit.
            let ended = count(&size, "failed")? + count(&size, "released")?;
            for state in COUNTED_ONE_BY_ONE {
                let counted = count(&size, state.as_str())?;
                let seen = if matches!(state, StateName::Failed | StateName::Released) {
                    ended
                } else {
                    counted
                };
                let is_all = i64::try_from(seen).is_ok_and(|seen| seen < COUNTED_EACH);
                if let Some(figures) = stats.of_mut(state) {
                    figures.count = if is_all { counted } else { figures.count.max(counted) };
                }
            }
        }
        Ok(stats)
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        let mut report = SweepReport::default();
        let mut left = limit;
        let mut damaged: Vec<RecordId> = Vec::new();
        let mut is_careful = false;
        while left > 0 && !report.more && damaged.len() < PASSED_BY {
            let asked = left.min(SWEPT_A_STATEMENT);
            let row = match self.sweep_some(asked, is_careful, &damaged).await {
                // One of them cannot be dealt with: the others are.
                Err(error) if !is_careful && is_about_records(&error) => {
                    tracing::error!(%error, "a sweep goes on record by record");
                    is_careful = true;
                    continue;
                }
                swept => swept?,
            };
            let before = report.changed();
            report.removed += count(&row, "o_removed")?;
            report.buried += count(&row, "o_buried")?;
            let held = read::column::<Option<&str>>(&row, "o_unknown")?.unwrap_or_default();
            report.held.extend(held_in(held).map(|(id, _)| id));
            let found = self.damaged_in(&row)?;
            let changed = usize::try_from(report.changed() - before).unwrap_or(usize::MAX);
            left = left.saturating_sub(changed);
            let is_last = count(&row, "o_due")? < asked as u64;
            // Others are at work on all that is due: they are not waited for.
            report.more = !is_last && (changed == 0 && found.is_empty() || left == 0);
            damaged.extend(found);
            if is_last {
                break;
            }
        }
        report.damaged = damaged.len() as u64;
        report.more |= limit == 0;
        self.forget(limit).await?;
        Ok(report)
    }

    async fn health(&self) -> StoreResult<Health> {
        Ok(Health { damaged: self.0.damage.damaged(), ..Health::default() })
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
    /// One portion of a sweep.
    async fn sweep_some(
        &self,
        asked: usize,
        is_careful: bool,
        damaged: &[RecordId],
    ) -> StoreResult<Row> {
        let db = &self.0.db;
        let portion = i64::try_from(asked).unwrap_or(i64::MAX);
        let passed: Vec<&[u8]> = damaged.iter().map(|id| id.as_bytes().as_slice()).collect();
        let of_all = None::<&[u8]>;
        db.one(&db.sql.sweep, &[&db.now(), &of_all, &portion, &is_careful, &passed]).await
    }

    /// The records that a sweep could not deal with.
    fn damaged_in(&self, row: &Row) -> StoreResult<Vec<RecordId>> {
        let names: Vec<&[u8]> = needed(row, "o_damaged")?;
        let ids = names.into_iter().filter_map(|name| name.try_into().ok());
        let ids: Vec<_> = ids.map(RecordId::from_bytes).collect();
        ids.iter().for_each(|id| self.0.note_damage(id, &"a sweep cannot deal with it"));
        Ok(ids)
    }

    /// What a query asks for among these rows.
    fn page(&self, query: &ListQuery, rows: &[Row], looked_at: i64) -> StoreResult<Page> {
        let mut page = Page::default();
        let mut last: Option<RecordId> = None;
        for row in rows {
            if page.records.len() == query.page_size() {
                page.next = last.map(Cursor);
                return Ok(page);
            }
            let id = read::id(row)?;
            let now = timestamp("listed_at", needed(row, "listed_at")?)?;
            match read::entry(row, Part::Summary) {
                Ok(entry) => page.records.extend(query.matches(id, &entry, now)),
                Err(error) => {
                    self.0.note_damage(&id, &error);
                    page.damaged.push(id);
                }
            }
            last = Some(id);
        }
        let ended = match rows.first() {
            None => true,
            Some(row) => needed::<i64>(row, "looked_at")? < looked_at,
        };
        page.next = last.filter(|_| !ended).map(Cursor);
        Ok(page)
    }

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

/// How many records a page looks at. One more than it holds shows whether there is a next one;
/// where some that are looked at are not asked for, more of them.
fn looked_at(query: &ListQuery) -> i64 {
    let size = query.page_size();
    let is_found = matches!(
        query.state,
        None | Some(StateName::Unknown | StateName::InProgress | StateName::Failed)
    );
    let is_exact = is_found && query.scope.is_none() && query.unchanged_for.is_none();
    let count = if is_exact { size + 1 } else { size.saturating_mul(LOOKED_AT_FOR_ONE) };
    i64::try_from(count.clamp(size + 1, LOOKED_AT)).unwrap_or(i64::MAX)
}

/// Whether nothing was done, and the reason is in the records.
fn is_about_records(error: &StoreError) -> bool {
    let is_elsewhere = matches!(
        error.kind(),
        StoreErrorKind::Unavailable | StoreErrorKind::TimedOut | StoreErrorKind::Full
    );
    error.effect() == Effect::NotApplied && !is_elsewhere
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
