//! Lists records: bucket by bucket, in the order of their ids, a bounded number at a time.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use justonce_core::store::{Cursor, ListQuery, Page};
use justonce_core::{RecordId, StateName, StoreResult, Timestamp};
use redis::Value;

use crate::codec::{SUMMARY_BYTES, summary};
use crate::error::unexpected;
use crate::layout::{CLASS, CLASSES, bucket};
use crate::reply::{id, number, parts};
use crate::store::RedisStore;

/// The buckets that are read at once.
const BUCKETS_AT_ONCE: usize = 16;
/// The limit of records that one page reads; then the next page continues.
const MAX_READ: usize = 4000;
/// The records that are read at once.
const READ_AT_ONCE: usize = 256;
/// About this many ids are in one reply.
const SCAN_COUNT: usize = 1000;

impl RedisStore {
    /// One page of a list.
    pub(crate) async fn page(&self, query: &ListQuery) -> StoreResult<Page> {
        let mut page = Page::default();
        let classes = classes(query.state);
        if classes.is_empty() {
            return Ok(page);
        }
        let now = self.now().await?;
        if let Some(id) = query.only {
            self.add(query, &[id], now, &mut page).await?;
            return Ok(page);
        }
        let after = query.after.map(|Cursor(after)| after);
        let first = after.as_ref().map_or(0, bucket);
        let buckets: Vec<u8> = (first..=u8::MAX).collect();
        let mut count = 0;
        for group in buckets.chunks(BUCKETS_AT_ONCE) {
            let scans = group.iter().map(async |bucket| match query.state {
                // Unknown operations are few and listed often: they are read by class.
                Some(StateName::Unknown) => self.indexed(*bucket, after, &classes).await,
                _ => self.scanned(*bucket, after, &classes).await,
            });
            for ids in join_all(scans).await {
                let ids: Vec<RecordId> = ids?.into_iter().collect();
                for portion in ids.chunks(READ_AT_ONCE) {
                    self.add(query, portion, now, &mut page).await?;
                    count += portion.len();
                    if page.records.len() > query.page_size() {
                        page.records.truncate(query.page_size());
                        page.next = page.records.last().map(|summary| Cursor(summary.id));
                        return Ok(page);
                    }
                    if count >= MAX_READ {
                        page.next = portion.last().copied().map(Cursor);
                        return Ok(page);
                    }
                }
            }
        }
        Ok(page)
    }

    /// The first ids of a bucket behind `after`, read class by class.
    async fn indexed(
        &self,
        bucket: u8,
        after: Option<RecordId>,
        classes: &[usize],
    ) -> StoreResult<BTreeSet<RecordId>> {
        let mut ids = BTreeSet::new();
        for class in classes {
            let from = CLASS.saturating_mul(*class as u64);
            let mut command = redis::cmd("ZRANGEBYSCORE");
            command.arg(self.layout().index(bucket)).arg(from).arg(format!("({}", from + CLASS));
            let reply = self.send(bucket, &command).await?;
            for found in parts(&reply) {
                keep_first(&mut ids, id(found)?, after);
            }
        }
        Ok(ids)
    }

    /// The first ids of a bucket behind `after`, in these classes, found among all of its ids.
    async fn scanned(
        &self,
        bucket: u8,
        after: Option<RecordId>,
        classes: &[usize],
    ) -> StoreResult<BTreeSet<RecordId>> {
        let mut ids = BTreeSet::new();
        let mut cursor = b"0".to_vec();
        loop {
            let mut command = redis::cmd("ZSCAN");
            command.arg(self.layout().index(bucket)).arg(&cursor).arg("COUNT").arg(SCAN_COUNT);
            let reply = self.send(bucket, &command).await?;
            let [Value::BulkString(next), pairs] = parts(&reply) else {
                return Err(unexpected("a scan"));
            };
            for pair in parts(pairs).chunks_exact(2) {
                let [found, Value::BulkString(score)] = pair else {
                    return Err(unexpected("a scan"));
                };
                if classes.contains(&class(score)?) {
                    keep_first(&mut ids, id(found)?, after);
                }
            }
            if next == b"0" {
                return Ok(ids);
            }
            cursor.clone_from(next);
        }
    }

    /// Adds those of some records that the query asks for.
    async fn add(
        &self,
        query: &ListQuery,
        ids: &[RecordId],
        now: Timestamp,
        page: &mut Page,
    ) -> StoreResult<()> {
        let commands = ids.iter().map(|id| {
            let mut command = redis::cmd("GETRANGE");
            command.arg(self.layout().record(id)).arg(0).arg(SUMMARY_BYTES - 1);
            (bucket(id), command)
        });
        let replies = self.send_many(commands.collect()).await?;
        for (id, reply) in ids.iter().zip(replies) {
            let Value::BulkString(bytes) = reply else {
                return Err(unexpected("a record"));
            };
            // Removed since its id was read.
            if bytes.is_empty() {
                continue;
            }
            match summary(id, &bytes) {
                Ok(entry) => page.records.extend(query.matches(*id, &entry, now)),
                // One that cannot be read must not hide the others.
                Err(error) => {
                    self.note_damage(id, &error);
                    page.damaged.push(*id);
                }
            }
        }
        Ok(())
    }

    /// The store's time.
    async fn now(&self) -> StoreResult<Timestamp> {
        if let Some(clock) = &self.clock {
            return Ok(clock.now());
        }
        let reply = self.send(0, &redis::cmd("TIME")).await?;
        let [Value::BulkString(seconds), Value::BulkString(micros)] = parts(&reply) else {
            return Err(unexpected("the time"));
        };
        let (seconds, micros) = (decimal(seconds)?, decimal(micros)?);
        Ok(Timestamp::from_millis(number(seconds * 1000 + micros / 1000)?))
    }
}

/// Adds an id behind `after`, and keeps the first ones: the page ends within them.
fn keep_first(ids: &mut BTreeSet<RecordId>, id: RecordId, after: Option<RecordId>) {
    if after.is_none_or(|after| id > after) {
        ids.insert(id);
    }
    if ids.len() > MAX_READ {
        ids.pop_last();
    }
}

/// The classes that records of a state may be in. A lapsed claim is unknown, and an ended one a
/// tombstone, before a sweep changes its class.
fn classes(state: Option<StateName>) -> Vec<usize> {
    let may_be = |stored: StateName| match state {
        None => true,
        Some(StateName::Unknown) => {
            matches!(stored, StateName::Unknown | StateName::InProgress)
        }
        Some(StateName::Tombstone) => !matches!(stored, StateName::InProgress | StateName::Unknown),
        // Earlier releases put released records into the class of failed ones.
        Some(StateName::Released) => matches!(stored, StateName::Released | StateName::Failed),
        Some(state) => state == stored,
    };
    let all = CLASSES.iter().enumerate();
    // Claims of the first class are taken over when they lapse, and never become unknown.
    let never = |class: usize| state == Some(StateName::Unknown) && class == 0;
    let classes = all.filter(|(class, stored)| may_be(**stored) && !never(*class));
    classes.map(|(class, _)| class).collect()
}

/// The class in a score. Scores are whole numbers below 2^53.
fn class(score: &[u8]) -> StoreResult<usize> {
    let text = std::str::from_utf8(score).map_err(|_| unexpected("an index"))?;
    let score: f64 = text.parse().map_err(|_| unexpected("an index"))?;
    #[expect(clippy::cast_precision_loss, reason = "a power of two is exact")]
    let class = (score / CLASS as f64).floor();
    let classes = (0_u8..).zip(CLASSES).map(|(class, _)| class);
    let found = classes.into_iter().find(|one| f64::from(*one) == class);
    found.map(usize::from).ok_or_else(|| unexpected("an index"))
}

fn decimal(bytes: &[u8]) -> StoreResult<i64> {
    let text = std::str::from_utf8(bytes).map_err(|_| unexpected("the time"))?;
    text.parse().map_err(|_| unexpected("the time"))
}
