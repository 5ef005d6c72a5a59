//! Lists records.

use justonce_core::store::{Cursor, ListQuery, Page};
use justonce_core::{RecordId, StateName, StoreResult};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::numbers::{millis, timestamp};
use crate::read::{self, Part};
use crate::row::needed;
use crate::store::PostgresStore;

/// The limit of records that one page reads: it bounds the time of a page.
const MAX_READ: usize = 5000;
/// The records that are read for each requested one, where the filter may skip some.
const READ_FOR_EACH: usize = 50;

impl PostgresStore {
    /// One page of a list.
    pub(crate) async fn page(&self, query: &ListQuery) -> StoreResult<Page> {
        let db = &self.0.db;
        let after = query.after.map(|Cursor(id)| *id.as_bytes());
        let after: &[u8] = after.as_ref().map_or(&[], |id| id.as_slice());
        let (now, limit) = (db.now(), row_limit(query));
        let unchanged = query.unchanged_for.map(millis);
        if let Some(id) = &query.only {
            let id = id.as_bytes().as_slice();
            let rows = db.rows(&db.sql.list_one, &[&id, &now, &limit, &unchanged]).await?;
            return self.page_of(query, &rows, limit);
        }
        let page: [&(dyn ToSql + Sync); 4] = [&after, &now, &limit, &unchanged];
        let rows = match query.state {
            Some(StateName::Unknown) => db.rows(&db.sql.list_unknown, &page).await?,
            Some(StateName::InProgress) => db.rows(&db.sql.list_in_progress, &page).await?,
            Some(StateName::Failed | StateName::Released) => {
                db.rows(&db.sql.list_failed, &page).await?
            }
            state => {
                let state = state.map_or("", StateName::as_str);
                db.rows(&db.sql.list, &[&after, &now, &limit, &unchanged, &state]).await?
            }
        };
        self.page_of(query, &rows, limit)
    }

    /// The page that the selected rows give.
    fn page_of(&self, query: &ListQuery, rows: &[Row], limit: i64) -> StoreResult<Page> {
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
            Some(row) => needed::<i64>(row, "looked_at")? < limit,
        };
        page.next = last.filter(|_| !ended).map(Cursor);
        Ok(page)
    }
}

/// The records that a page reads. One more than it holds shows whether there is a next one; where
/// the filter may skip records, more are read.
fn row_limit(query: &ListQuery) -> i64 {
    let size = query.page_size();
    let is_found = matches!(
        query.state,
        None | Some(StateName::Unknown | StateName::InProgress | StateName::Failed)
    );
    let is_exact = is_found && query.scope.is_none() && query.unchanged_for.is_none();
    let count = if is_exact { size + 1 } else { size.saturating_mul(READ_FOR_EACH) };
    i64::try_from(count.clamp(size + 1, MAX_READ)).unwrap_or(i64::MAX)
}
