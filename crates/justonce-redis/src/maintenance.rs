//! Counts and sweeps records.

use futures_util::future::join_all;
use justonce_core::store::{Health, ListQuery, Maintenance, Page, Stats, SweepReport};
use justonce_core::{Action, Answer, RecordId, Step, StoreErrorKind, StoreResult, SweepDone};
use redis::{Cmd, Value};

use crate::error::unexpected;
use crate::layout::{CLASSES, bucket};
use crate::reply::{id, number, parts};
use crate::scripts::{self, Lua};
use crate::store::RedisStore;

/// The buckets that one script reads where all are on one server: this takes well under a
/// millisecond.
const BUCKETS_AT_ONCE: usize = 64;
/// The records that are swept before the next are searched.
const SWEEP_PORTION: usize = 256;
/// The records of each bucket and class whose size is measured. The others are taken to have the
/// same average.
const MEASURED: usize = 4;
/// The limit of concurrent commands.
const COMMANDS_AT_ONCE: usize = 128;

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
            // A count and a list of ids for each class of each bucket.
            for (class, pair) in parts(&counted).chunks_exact(2).enumerate() {
                let [Value::Int(count), Value::Array(ids)] = pair else {
                    return Err(unexpected("a count"));
                };
                let state = CLASSES.get(class % CLASSES.len());
                let state = *state.ok_or_else(|| unexpected("a count"))?;
                let ids = ids.iter().map(id).collect::<StoreResult<Vec<_>>>()?;
                samples.push((state, number(*count)?, ids));
            }
            let sizes = self.sizes(samples.iter().flat_map(|(_, _, ids)| ids)).await?;
            let mut sizes = sizes.into_iter();
            for (state, count, ids) in samples {
                let seen = ids.len() as u64;
                let bytes: u64 = sizes.by_ref().take(ids.len()).sum();
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
                // One more than may be swept shows whether there are more.
                let wanted = left.saturating_add(1).min(SWEEP_PORTION).to_string();
                let found = self.on_indexes(&self.scripts.due, &group, wanted.as_bytes()).await?;
                let due = parts(&found).iter().map(id).collect::<StoreResult<Vec<_>>>()?;
                if due.len() > left {
                    report.more = true;
                }
                let done = self.sweep_these(due.get(..left).unwrap_or(&due), &mut report).await?;
                left = left.saturating_sub(done);
                if report.more && left == 0 {
                    return Ok(report);
                }
                report.more = false;
                // Records that cannot be swept must not be searched again and again.
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
        self.monitor.check().await?;
        // Writes nothing, and is refused whenever a write would be.
        for bucket in self.nodes.bucket_of_each().await? {
            let mut command = redis::cmd("SETRANGE");
            command.arg(self.layout().nothing(bucket)).arg(0).arg("");
            self.send(bucket, &command).await?;
        }
        Ok(())
    }
}

impl RedisStore {
    /// The buckets, in groups whose indexes one script may read.
    fn groups(&self) -> Vec<Vec<u8>> {
        let size = if self.nodes.is_cluster() { 1 } else { BUCKETS_AT_ONCE };
        let all: Vec<u8> = (0..=u8::MAX).collect();
        all.chunks(size).map(<[u8]>::to_vec).collect()
    }

    /// Runs a script on the indexes of some buckets.
    async fn on_indexes(&self, script: &Lua, group: &[u8], last: &[u8]) -> StoreResult<Value> {
        let keys: Vec<_> = group.iter().map(|one| self.layout().index(*one)).collect();
        let first = group.first().copied().unwrap_or_default();
        let moment = self.moment();
        let arguments = [moment.as_bytes(), last];
        Ok(scripts::run(&self.nodes, first, 0, script, &keys, &arguments).await?.value)
    }

    /// Sweeps these records. Gives the number of those that changed.
    async fn sweep_these(&self, due: &[RecordId], report: &mut SweepReport) -> StoreResult<usize> {
        let mut swept = 0;
        for portion in due.chunks(COMMANDS_AT_ONCE) {
            let sweep =
                async |id: &RecordId| self.apply_alone(&Step::new(*id, Action::Sweep)).await;
            let answers = join_all(portion.iter().map(sweep)).await;
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
                    Ok(_) => return Err(unexpected("a sweep")),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(swept)
    }

    /// The sizes of some records.
    async fn sizes(&self, ids: impl Iterator<Item = &RecordId>) -> StoreResult<Vec<u64>> {
        let commands = ids.map(|id| {
            let mut command = redis::cmd("STRLEN");
            command.arg(self.layout().record(id));
            (bucket(id), command)
        });
        let replies = self.send_many(commands.collect()).await?;
        replies
            .iter()
            .map(|reply| match reply {
                Value::Int(bytes) => number(*bytes),
                _ => Err(unexpected("a size")),
            })
            .collect()
    }

    /// Sends commands that only read, concurrently. Gives their replies in order.
    pub(crate) async fn send_many(&self, commands: Vec<(u8, Cmd)>) -> StoreResult<Vec<Value>> {
        let mut replies = Vec::with_capacity(commands.len());
        for portion in commands.chunks(COMMANDS_AT_ONCE) {
            let sent = portion.iter().map(|(bucket, command)| self.send(*bucket, command));
            for reply in join_all(sent).await {
                replies.push(reply?);
            }
        }
        Ok(replies)
    }
}
