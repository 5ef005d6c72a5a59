//! Counts and sweeps records.

use justonce_core::store::{Health, ListQuery, Maintenance, Page, Stats, SweepReport};
use justonce_core::{Effect, RecordId, StateName, StoreError, StoreErrorKind, StoreResult};
use tokio_postgres::Row;

use crate::error::damaged;
use crate::reply::held_in;
use crate::row::{column, count, needed};
use crate::store::PostgresStore;

/// The limit of records that one statement of a sweep changes: it holds its locks for milliseconds.
const SWEEP_PORTION: usize = 200;
/// The limit of damaged records that one sweep skips: with more, something else is wrong.
const MAX_SKIPPED: usize = 1000;
/// The states whose records may need an operator.
const NEED_ATTENTION: [StateName; 4] =
    [StateName::Unknown, StateName::InProgress, StateName::Failed, StateName::Released];
/// Up to this size a table is counted. Of a larger one a sample of this size is counted, so that
/// the cost does not grow with the table.
const SAMPLE_BYTES: u64 = 4 * 1024 * 1024;
/// Up to this number, the records that may need an operator are counted exactly.
const MAX_EXACT: i64 = 10_000;

impl Maintenance for PostgresStore {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.page(query).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        let db = &self.0.db;
        let size = db.read_one(&db.sql.size, &[&MAX_EXACT]).await?;
        let percent = sampled_percent(count(&size, "bytes")?);
        let rows = db.rows(&db.sql.stats, &[&percent]).await?;
        let mut stats = Stats::default();
        for row in &rows {
            let name: &str = needed(row, "state")?;
            let state = StateName::ALL.into_iter().find(|state| state.as_str() == name);
            // A list reports records with an unknown state.
            if let Some(figures) = state.and_then(|state| stats.of_mut(state)) {
                figures.count = scaled(count(row, "count")?, percent);
                figures.bytes = scaled(count(row, "bytes")?, percent);
            }
        }
        if percent < WHOLE {
            // Failed and released records are counted together up to the limit.
            let ended = count(&size, "failed")? + count(&size, "released")?;
            for state in NEED_ATTENTION {
                let counted = count(&size, state.as_str())?;
                let seen = if matches!(state, StateName::Failed | StateName::Released) {
                    ended
                } else {
                    counted
                };
                let is_all = i64::try_from(seen).is_ok_and(|seen| seen < MAX_EXACT);
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
        let mut one_by_one = false;
        while left > 0 && !report.more && damaged.len() < MAX_SKIPPED {
            let asked = left.min(SWEEP_PORTION);
            let row = match self.sweep_some(asked, one_by_one, &damaged).await {
                // A damaged record must not keep the others from being swept.
                Err(error) if !one_by_one && is_about_records(&error) => {
                    tracing::error!(%error, "a sweep goes on record by record");
                    one_by_one = true;
                    continue;
                }
                swept => swept?,
            };
            let before = report.changed();
            report.removed += count(&row, "o_removed")?;
            report.buried += count(&row, "o_buried")?;
            let held = column::<Option<&str>>(&row, "o_unknown")?.unwrap_or_default();
            report.held.extend(held_in(held).map(|(id, _)| id));
            let found = self.damaged_in(&row)?;
            let changed = usize::try_from(report.changed() - before).unwrap_or(usize::MAX);
            left = left.saturating_sub(changed);
            let is_last = count(&row, "o_due")? < asked as u64;
            // If nothing changed, other sweeps have locked all that is due.
            report.more = !is_last && (changed == 0 && found.is_empty() || left == 0);
            damaged.extend(found);
            if is_last {
                break;
            }
        }
        report.damaged = damaged.len() as u64;
        report.more |= limit == 0;
        self.sweep_messages(limit).await?;
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
        one_by_one: bool,
        damaged: &[RecordId],
    ) -> StoreResult<Row> {
        let db = &self.0.db;
        let portion = i64::try_from(asked).unwrap_or(i64::MAX);
        let passed: Vec<&[u8]> = damaged.iter().map(|id| id.as_bytes().as_slice()).collect();
        let of_all = None::<&[u8]>;
        db.one(&db.sql.sweep, &[&db.now(), &of_all, &portion, &one_by_one, &passed]).await
    }

    /// The records that a sweep could not read.
    fn damaged_in(&self, row: &Row) -> StoreResult<Vec<RecordId>> {
        let names: Vec<&[u8]> = needed(row, "o_damaged")?;
        let ids = names.into_iter().filter_map(|name| name.try_into().ok());
        let ids: Vec<_> = ids.map(RecordId::from_bytes).collect();
        ids.iter().for_each(|id| self.0.note_damage(id, &"a sweep cannot read it"));
        Ok(ids)
    }

    /// Removes messages of consumers whose retention is over, in portions.
    async fn sweep_messages(&self, limit: usize) -> StoreResult<()> {
        let db = &self.0.db;
        let mut left = limit;
        while left > 0 {
            let asked = left.min(SWEEP_PORTION);
            let portion = i64::try_from(asked).unwrap_or(i64::MAX);
            let row = db.one(&db.sql.forget_messages, &[&db.now(), &portion]).await?;
            if row.try_get::<_, i64>(0).map_err(damaged)? < portion {
                break;
            }
            left -= asked;
        }
        Ok(())
    }
}

const WHOLE: f32 = 100.0;

/// The part of a table of this size that is counted.
#[allow(clippy::cast_precision_loss, reason = "a percentage does not need more")]
fn sampled_percent(bytes: u64) -> f32 {
    if bytes <= SAMPLE_BYTES { WHOLE } else { WHOLE * SAMPLE_BYTES as f32 / bytes as f32 }
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
        assert_eq!(scaled(17, sampled_percent(SAMPLE_BYTES)), 17);
        let percent = sampled_percent(SAMPLE_BYTES * 10);
        assert!((9.0..11.0).contains(&percent), "{percent}");
        assert_eq!(scaled(17, percent), 170);
    }
}
