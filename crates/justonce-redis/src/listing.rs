//! Listing the records of a Redis store: bucket by bucket, in the order of names, a bounded number
//! at a time.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use justonce_core::store::{Cursor, ListQuery, Page};
use justonce_core::{RecordId, StateName, StoreResult, Timestamp};
use redis::Value;

use crate::codec::{SUMMARY_BYTES, entry_of};
use crate::error::{Trouble, strange};
use crate::layout::{CLASS, CLASSES, bucket};
use crate::maintenance::name;
use crate::reply::{number, parts};
use crate::store::RedisStore;

/// How many buckets are looked into at once.
const BUCKETS_AT_ONCE: usize = 16;
/// How many records one page looks at, at most; then the next page goes on.
const LOOKED_AT: usize = 4000;
/// How many records are read at once.
const READ_AT_ONCE: usize = 256;
/// About how many names a server gives at once.
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
        let after = query.after.map(|Cursor(after)| after);
        let first = after.as_ref().map_or(0, bucket);
        let buckets: Vec<u8> = (first..=u8::MAX).collect();
        let mut looked = 0;
        for group in buckets.chunks(BUCKETS_AT_ONCE) {
            let scans =
                group.iter().map(|bucket| self.names(*bucket, after, &classes, query.state));
            for names in join_all(scans).await {
                let names: Vec<RecordId> = names?.into_iter().collect();
                for portion in names.chunks(READ_AT_ONCE) {
                    self.add(query, portion, now, &mut page).await?;
                    looked += portion.len();
                    if page.records.len() > query.page_size() {
                        page.records.truncate(query.page_size());
                        page.next = page.records.last().map(|summary| Cursor(summary.id));
                        return Ok(page);
                    }
                    if looked >= LOOKED_AT {
                        page.next = portion.last().copied().map(Cursor);
                        return Ok(page);
                    }
                }
            }
        }
        Ok(page)
    }

    /// The first names of a bucket behind `after`, of these classes. What is unknown is looked for
    /// again and again, and there is little of it: the index leads to it.
    async fn names(
        &self,
        bucket: u8,
        after: Option<RecordId>,
        classes: &[usize],
        state: Option<StateName>,
    ) -> StoreResult<BTreeSet<RecordId>> {
        match state {
            Some(StateName::Unknown) => self.indexed(bucket, after, classes).await,
            _ => self.scanned(bucket, after, classes).await,
        }
    }

    /// The first names of a bucket behind `after`, read class by class.
    async fn indexed(
        &self,
        bucket: u8,
        after: Option<RecordId>,
        classes: &[usize],
    ) -> StoreResult<BTreeSet<RecordId>> {
        let mut names = BTreeSet::new();
        for class in classes {
            let from = CLASS.saturating_mul(*class as u64);
            let mut command = redis::cmd("ZRANGEBYSCORE");
            command.arg(self.layout().index(bucket)).arg(from).arg(format!("({}", from + CLASS));
            let sent = self.nodes.send(bucket, 0, &command).await.map_err(Trouble::into_error)?;
            for id in parts(&sent.value) {
                let id = name(id)?;
                keep_first(&mut names, id, after);
            }
        }
        Ok(names)
    }

    /// The first names of a bucket behind `after`, of these classes, among all of its names.
    async fn scanned(
        &self,
        bucket: u8,
        after: Option<RecordId>,
        classes: &[usize],
    ) -> StoreResult<BTreeSet<RecordId>> {
        let mut names = BTreeSet::new();
        let mut cursor = b"0".to_vec();
        loop {
            let mut command = redis::cmd("ZSCAN");
            command.arg(self.layout().index(bucket)).arg(&cursor).arg("COUNT").arg(SCAN_COUNT);
            let sent = self.nodes.send(bucket, 0, &command).await.map_err(Trouble::into_error)?;
            let [Value::BulkString(next), found] = parts(&sent.value) else {
                return Err(strange("a scan"));
            };
            for pair in parts(found).chunks_exact(2) {
                let [id, Value::BulkString(score)] = pair else {
                    return Err(strange("a scan"));
                };
                if classes.contains(&class(score)?) {
                    keep_first(&mut names, name(id)?, after);
                }
            }
            if next == b"0" {
                return Ok(names);
            }
            cursor.clone_from(next);
        }
    }

    /// Adds those of some records that the query asks for.
    async fn add(
        &self,
        query: &ListQuery,
        names: &[RecordId],
        now: Timestamp,
        page: &mut Page,
    ) -> StoreResult<()> {
        let commands = names.iter().map(|id| {
            let mut command = redis::cmd("GETRANGE");
            command.arg(self.layout().record(id)).arg(0).arg(SUMMARY_BYTES - 1);
            (bucket(id), command)
        });
        let replies = self.send_many(commands.collect()).await?;
        for (id, reply) in names.iter().zip(replies) {
            let Value::BulkString(bytes) = reply else {
                return Err(strange("a record"));
            };
            // Removed since its name was read.
            if bytes.is_empty() {
                continue;
            }
            match entry_of(id, &bytes) {
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
        let sent = self.nodes.send(0, 0, &redis::cmd("TIME")).await.map_err(Trouble::into_error)?;
        let [Value::BulkString(seconds), Value::BulkString(micros)] = parts(&sent.value) else {
            return Err(strange("the time"));
        };
        let (seconds, micros) = (decimal(seconds)?, decimal(micros)?);
        Ok(Timestamp::from_millis(number(seconds * 1000 + micros / 1000)?))
    }
}

/// Adds a name behind `after`. The page ends within the first: names behind them are for the next
/// one.
fn keep_first(names: &mut BTreeSet<RecordId>, id: RecordId, after: Option<RecordId>) {
    if after.is_none_or(|after| id > after) {
        names.insert(id);
    }
    if names.len() > LOOKED_AT {
        names.pop_last();
    }
}

/// The classes in which records of a state lie. Time makes lapsed claims unknown and ended ones
/// tombstones before a sweep moves them.
fn classes(state: Option<StateName>) -> Vec<usize> {
    let may_be = |stored: StateName| match state {
        None => true,
        Some(StateName::Unknown) => {
            matches!(stored, StateName::Unknown | StateName::InProgress)
        }
        Some(StateName::Tombstone) => !matches!(stored, StateName::InProgress | StateName::Unknown),
        // Earlier releases kept what was released among what failed.
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
    let text = std::str::from_utf8(score).map_err(|_| strange("an index"))?;
    let score: f64 = text.parse().map_err(|_| strange("an index"))?;
    #[expect(clippy::cast_precision_loss, reason = "a power of two is exact")]
    let class = (score / CLASS as f64).floor();
    let classes = (0_u8..).zip(CLASSES).map(|(class, _)| class);
    let found = classes.into_iter().find(|one| f64::from(*one) == class);
    found.map(usize::from).ok_or_else(|| strange("an index"))
}

fn decimal(bytes: &[u8]) -> StoreResult<i64> {
    let text = std::str::from_utf8(bytes).map_err(|_| strange("the time"))?;
    text.parse().map_err(|_| strange("the time"))
}
