//! Counting and cleaning a Redis store.

use futures_util::future::join_all;
use justonce_core::store::{Health, ListQuery, Maintenance, Page, Stats, SweepReport};
use justonce_core::{Answer, RecordId, StoreErrorKind, StoreResult, SweepDone};
use redis::{Cmd, Value};

use crate::error::{Trouble, strange};
use crate::layout::{BUCKETS, CLASSES, bucket};
use crate::reply::{number, parts};
use crate::scripts::Lua;
use crate::store::RedisStore;

/// How many buckets one script looks at where all are on one server: it takes well under a
/// millisecond.
const BUCKETS_AT_ONCE: usize = 64;
/// How many records are swept before the next are looked for.
const SWEEP_PORTION: usize = 256;
/// Of how many records of each bucket and class the size is measured. Where there are more, theirs
/// is taken for the average.
const MEASURED: usize = 4;
/// How many commands are on their way at once.
pub(crate) const COMMANDS_AT_ONCE: usize = 128;

impl Maintenance for RedisStore {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.page(query).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        let mut stats = Stats::default();
        let measured = MEASURED.to_string();
        for group in self.groups() {
            let counted = self.on_indexes(&self.scripts.count, &group, measured.as_bytes()).await?;
            let mut samples = Vec::new();
            // A count and a list of names for each class, over and over.
            for (class, pair) in parts(&counted).chunks_exact(2).enumerate() {
                let [Value::Int(count), Value::Array(names)] = pair else {
                    return Err(strange("a count"));
                };
                let state = CLASSES.get(class % CLASSES.len());
                let state = *state.ok_or_else(|| strange("a count"))?;
                let names = names.iter().map(name).collect::<StoreResult<Vec<_>>>()?;
                samples.push((state, number(*count)?, names));
            }
            let sizes = self.sizes(samples.iter().flat_map(|(_, _, names)| names)).await?;
            let mut sizes = sizes.into_iter();
            for (state, count, names) in samples {
                let seen = names.len() as u64;
                let bytes: u64 = sizes.by_ref().take(names.len()).sum();
                if let Some(figures) = stats.of_mut(state)
                    && seen > 0
                {
                    figures.count += count;
                    figures.bytes += bytes.saturating_mul(count) / seen;
                }
            }
        }
        Ok(stats)
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        let mut report = SweepReport::default();
        let mut left = limit;
        for group in self.groups() {
            loop {
                // One more than may be swept tells whether there is more.
                let wanted = left.saturating_add(1).min(SWEEP_PORTION).to_string();
                let found = self.on_indexes(&self.scripts.due, &group, wanted.as_bytes()).await?;
                let due = parts(&found).iter().map(name).collect::<StoreResult<Vec<_>>>()?;
                if due.len() > left {
                    report.more = true;
                }
                let done = self.sweep_these(due.get(..left.min(due.len())), &mut report).await?;
                left = left.saturating_sub(done);
                if report.more && left == 0 {
                    return Ok(report);
                }
                report.more = false;
                // What cannot be swept must not be looked for again and again.
                if done == 0 {
                    break;
                }
            }
        }
        Ok(report)
    }

    async fn health(&self) -> StoreResult<Health> {
        Ok(Health { damaged: self.damage.damaged(), ..Health::default() })
    }

    async fn ready(&self) -> StoreResult<()> {
        self.checks.check().await?;
        // Writes nothing, and is refused just when a write would be.
        for bucket in self.first_buckets().await? {
            let mut command = redis::cmd("SETRANGE");
            command.arg(self.layout().nothing(bucket)).arg(0).arg("");
            self.nodes.send(bucket, 0, &command).await.map_err(Trouble::into_error)?;
        }
        Ok(())
    }
}

impl RedisStore {
    /// The buckets in groups of which one script may see the indexes.
    fn groups(&self) -> Vec<Vec<u8>> {
        let size = if self.nodes.is_cluster() { 1 } else { BUCKETS_AT_ONCE };
        let all: Vec<u8> = (0..=u8::MAX).collect();
        debug_assert_eq!(all.len(), BUCKETS);
        all.chunks(size).map(<[u8]>::to_vec).collect()
    }

    /// Runs a script on the indexes of some buckets.
    async fn on_indexes(&self, script: &Lua, group: &[u8], last: &[u8]) -> StoreResult<Value> {
        let keys: Vec<_> = group.iter().map(|one| self.layout().index(*one)).collect();
        let first = group.first().copied().unwrap_or_default();
        let moment = self.moment();
        Ok(self.run_at(first, 0, script, &keys, &[moment.as_bytes(), last]).await?.value)
    }

    /// Sweeps these records, and says of how many something became of.
    async fn sweep_these(
        &self,
        due: Option<&[RecordId]>,
        report: &mut SweepReport,
    ) -> StoreResult<usize> {
        let mut swept = 0;
        for portion in due.unwrap_or_default().chunks(COMMANDS_AT_ONCE) {
            let answers = join_all(portion.iter().map(|id| self.sweep_one(id))).await;
            for (id, answer) in portion.iter().zip(answers) {
                match answer {
                    Ok(Answer::Swept(SweepDone::Kept)) => {}
                    Ok(Answer::Swept(done)) => {
                        report.count(*id, done);
                        swept += 1;
                    }
                    // One that cannot be read must not keep the others from being swept.
                    Err(error) if error.kind() == StoreErrorKind::Damaged => {
                        self.note_damage(id, &error);
                        report.damaged += 1;
                    }
                    Ok(_) => return Err(strange("a sweep")),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(swept)
    }

    /// The sizes of some records.
    async fn sizes(&self, names: impl Iterator<Item = &RecordId>) -> StoreResult<Vec<u64>> {
        let commands = names.map(|id| {
            let mut command = redis::cmd("STRLEN");
            command.arg(self.layout().record(id));
            (bucket(id), command)
        });
        let replies = self.send_many(commands.collect()).await?;
        replies
            .iter()
            .map(|reply| match reply {
                Value::Int(bytes) => number(*bytes),
                _ => Err(strange("a size")),
            })
            .collect()
    }

    /// Sends commands that only read, many at once, and gives their replies in order.
    pub(crate) async fn send_many(&self, commands: Vec<(u8, Cmd)>) -> StoreResult<Vec<Value>> {
        let mut replies = Vec::with_capacity(commands.len());
        for portion in commands.chunks(COMMANDS_AT_ONCE) {
            let sent = portion.iter().map(|(bucket, command)| self.nodes.send(*bucket, 0, command));
            for reply in join_all(sent).await {
                replies.push(reply.map_err(Trouble::into_error)?.value);
            }
        }
        Ok(replies)
    }

    /// One bucket of each server.
    async fn first_buckets(&self) -> StoreResult<Vec<u8>> {
        if !self.nodes.is_cluster() {
            return Ok(vec![0]);
        }
        self.nodes.bucket_of_each().await
    }
}

/// The name of a record as an index holds it.
pub(crate) fn name(value: &Value) -> StoreResult<RecordId> {
    match value {
        Value::BulkString(bytes) => <[u8; 32]>::try_from(bytes.as_slice())
            .map(RecordId::from_bytes)
            .map_err(|_| strange("an index")),
        _ => Err(strange("an index")),
    }
}
