//! A cache of outcomes in Redis, in front of a store that is elsewhere.
//!
//! ```text
//! {prefix:3f}o<32 bytes>   the outcome of a record
//! {prefix:3f}g<32 bytes>   when it was last forgotten, for as long as that matters
//! ```

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use justonce_core::codec::{decode_outcome, encode_outcome};
use justonce_core::store::{CachedOutcome, Lookup, OutcomeCache, PutPermit};
use justonce_core::{Clock, Fingerprint, RecordId, StoreResult, Timestamp};
use redis::Value;

use crate::address::{Address, checked_prefix};
use crate::error::unexpected;
use crate::layout::{Key, Layout, bucket};
use crate::node::NodeSettings;
use crate::nodes::Nodes;
use crate::scripts::{self, Lua, OutcomeScripts};
use crate::tls::Roots;

/// The default time that an outcome is kept. An erasure through a process with the same cache drops
/// it at once; other erasures are noticed after this time.
pub const OUTCOME_AGE: Duration = Duration::from_secs(10 * 60);
/// The default time limit for a reply, after which the connection counts as broken: a little less
/// than a step waits for its cache.
pub const OUTCOME_REPLY_TIMEOUT: Duration = Duration::from_millis(40);
/// Larger outcomes are not kept: they would delay all others on the connection.
pub const MAX_OUTCOME_BYTES: usize = 256 * 1024;

const _: () = assert!(
    OUTCOME_REPLY_TIMEOUT.as_millis() < justonce_core::store::CACHE_WAIT.as_millis(),
    "a connection that hangs is replaced by its callers"
);

/// The version of the format.
const FORMAT: u8 = 1;
/// Where the outcome begins: behind the format, the kind, the fingerprint and two moments.
const HEADER_BYTES: usize = 1 + 1 + 33 + 8 + 8;

/// A cache of outcomes in Redis that many processes share.
///
/// It may lose anything at any time: no persistence is needed, and any eviction policy will do.
/// The store behind it decides.
///
/// ```
/// # use justonce_core::{ManualClock, memory::MemoryStore};
/// use justonce_core::store::Cached;
/// use justonce_redis::RedisOutcomes;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), justonce_core::StoreError> {
/// # let store = || MemoryStore::new(ManualClock::default());
/// // The default: outcomes are kept for ten minutes.
/// let tiered = Cached::new(store(), RedisOutcomes::builder("redis://127.0.0.1:6379").build()?);
///
/// // Customised: a cluster, its own prefix, at most one minute.
/// let outcomes = RedisOutcomes::builder("redis-cluster://n1:6379,n2:6379")
///     .prefix("payments")
///     .age(Duration::from_secs(60))
///     .build()?;
/// let tiered = Cached::new(store(), outcomes);
/// # Ok(())
/// # }
/// ```
pub struct RedisOutcomes {
    nodes: Nodes,
    scripts: OutcomeScripts,
    age: Duration,
    clock: Option<Box<dyn Clock>>,
}

impl RedisOutcomes {
    /// Starts with an address, as for [`RedisStore`](crate::RedisStore).
    pub fn builder(url: impl Into<String>) -> RedisOutcomesBuilder {
        RedisOutcomesBuilder {
            url: url.into(),
            ca_file: None,
            prefix: "justonce-outcomes".to_owned(),
            age: OUTCOME_AGE,
            reply_timeout: OUTCOME_REPLY_TIMEOUT,
            clock: None,
        }
    }

    async fn run(
        &self,
        id: &RecordId,
        script: &Lua,
        keys: &[Key<'_>],
        arguments: &[&[u8]],
    ) -> StoreResult<Value> {
        // The time is the server's, except in tests.
        let moment = self.clock.as_ref().map(|clock| clock.now().as_millis().to_string());
        let moment = moment.unwrap_or_default();
        let arguments: Vec<&[u8]> =
            std::iter::once(moment.as_bytes()).chain(arguments.iter().copied()).collect();
        let sent = scripts::run(&self.nodes, bucket(id), 0, script, keys, &arguments).await?;
        Ok(sent.value)
    }

    fn outcome_key<'a>(&'a self, id: &'a RecordId) -> Key<'a> {
        self.nodes.layout.of_record(id, b'o')
    }

    fn keys<'a>(&'a self, id: &'a RecordId) -> [Key<'a>; 2] {
        [self.outcome_key(id), self.nodes.layout.of_record(id, b'g')]
    }
}

impl OutcomeCache for RedisOutcomes {
    async fn get(&self, id: &RecordId, asked: &Fingerprint) -> StoreResult<Lookup> {
        let value = self.run(id, &self.scripts.outcome_get, &[self.outcome_key(id)], &[]).await?;
        let Value::Array(parts) = &value else {
            return Err(unexpected("a look for an outcome"));
        };
        let [Value::Int(now), found] = parts.as_slice() else {
            return Err(unexpected("a look for an outcome"));
        };
        let millis = u64::try_from(*now).map_err(|_| unexpected("a look for an outcome"))?;
        let now = Timestamp::from_millis(millis);
        let permit = PutPermit { at: now, turn: millis };
        // An unreadable outcome counts as absent: the store answers, and it is put again.
        let kept = match found {
            Value::BulkString(bytes) => read(bytes).filter(|row| now < row.fresh_until),
            _ => None,
        };
        Ok(match kept {
            None => Lookup::Nothing(permit),
            Some(row) if row.fingerprint != *asked => Lookup::Other(permit),
            Some(row) => match decode_outcome(row.outcome) {
                Err(_) => Lookup::Nothing(permit),
                Ok(outcome) => Lookup::Found(CachedOutcome {
                    fingerprint: row.fingerprint,
                    outcome,
                    failed: row.failed,
                    left: row.expires_at.since(now),
                }),
            },
        })
    }

    async fn put(&self, id: &RecordId, kept: &CachedOutcome, permit: PutPermit) -> StoreResult<()> {
        let expires_at = permit.at.after(kept.left);
        let fresh_until = permit.at.after(kept.left.min(self.age));
        let bytes = written(kept, expires_at, fresh_until);
        if bytes.len() > MAX_OUTCOME_BYTES {
            return Ok(());
        }
        let look = permit.turn.to_string();
        let till = fresh_until.as_millis().to_string();
        let arguments = [look.as_bytes(), till.as_bytes(), bytes.as_slice()];
        self.run(id, &self.scripts.outcome_put, &self.keys(id), &arguments).await?;
        Ok(())
    }

    async fn forget(&self, id: &RecordId) -> StoreResult<()> {
        let mark = self.age.as_millis().max(1).to_string();
        self.run(id, &self.scripts.outcome_forget, &self.keys(id), &[mark.as_bytes()]).await?;
        Ok(())
    }
}

impl fmt::Debug for RedisOutcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOutcomes").field("age", &self.age).finish_non_exhaustive()
    }
}

/// A kept outcome before it is decoded.
struct Row<'a> {
    fingerprint: Fingerprint,
    failed: bool,
    expires_at: Timestamp,
    fresh_until: Timestamp,
    outcome: &'a [u8],
}

fn written(kept: &CachedOutcome, expires_at: Timestamp, fresh_until: Timestamp) -> Vec<u8> {
    let outcome = encode_outcome(&kept.outcome);
    let mut bytes = Vec::with_capacity(HEADER_BYTES + outcome.len());
    bytes.extend_from_slice(&[FORMAT, u8::from(kept.failed), kept.fingerprint.version()]);
    bytes.extend_from_slice(kept.fingerprint.digest());
    bytes.extend_from_slice(&expires_at.as_millis().to_be_bytes());
    bytes.extend_from_slice(&fresh_until.as_millis().to_be_bytes());
    bytes.extend_from_slice(&outcome);
    bytes
}

fn read(bytes: &[u8]) -> Option<Row<'_>> {
    let ([FORMAT, failed, version], rest) = bytes.split_first_chunk()? else {
        return None;
    };
    let failed = match failed {
        0 => false,
        1 => true,
        _ => return None,
    };
    let (digest, rest) = rest.split_first_chunk()?;
    let (expires_at, rest) = rest.split_first_chunk()?;
    let (fresh_until, outcome) = rest.split_first_chunk()?;
    let moment = |bytes: &[u8; 8]| Timestamp::from_millis(u64::from_be_bytes(*bytes));
    Some(Row {
        fingerprint: Fingerprint::from_parts(*version, *digest),
        failed,
        expires_at: moment(expires_at),
        fresh_until: moment(fresh_until),
        outcome,
    })
}

/// Collects the settings of [`RedisOutcomes`], starting from the defaults.
#[must_use = "a builder does nothing until `build`"]
pub struct RedisOutcomesBuilder {
    url: String,
    ca_file: Option<PathBuf>,
    prefix: String,
    age: Duration,
    reply_timeout: Duration,
    clock: Option<Box<dyn Clock>>,
}

impl RedisOutcomesBuilder {
    /// The only trust roots for TLS, a PEM file, for addresses that begin with `rediss`. Default:
    /// the roots of the machine.
    #[cfg(feature = "tls")]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// The prefix of all keys. Default: `justonce-outcomes`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The time that an outcome is kept, at most. Default: [`OUTCOME_AGE`].
    pub const fn age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// The time limit for a reply. Default: [`OUTCOME_REPLY_TIMEOUT`]. Keep it below the wait of
    /// the layer: see [`Cached::wait`](justonce_core::store::Cached::wait).
    pub const fn reply_timeout(mut self, limit: Duration) -> Self {
        self.reply_timeout = limit;
        self
    }

    /// Another clock, for tests. Default: the server's.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Makes the cache. It connects at its first use, so a start does not depend on it.
    ///
    /// # Errors
    ///
    /// If the address, the file of trust roots or the prefix is not allowed.
    pub fn build(self) -> StoreResult<RedisOutcomes> {
        checked_prefix(&self.prefix)?;
        let roots = Roots::new(self.ca_file.as_deref())?;
        let address = Address::parse(&self.url, &roots)?;
        // A cache may lose anything, so any server will do.
        let (reply_timeout, requirements, confirm) = (self.reply_timeout, None, None);
        let settings = NodeSettings { reply_timeout, connections: 1, requirements, confirm };
        Ok(RedisOutcomes {
            nodes: Nodes::new(address, Layout::new(&self.prefix), settings),
            scripts: OutcomeScripts::new(),
            age: self.age,
            clock: self.clock,
        })
    }
}

impl fmt::Debug for RedisOutcomesBuilder {
    /// An address may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOutcomesBuilder")
            .field("prefix", &self.prefix)
            .field("age", &self.age)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use justonce_core::{Outcome, Scope};

    use super::*;

    fn kept(failed: bool) -> CachedOutcome {
        CachedOutcome {
            fingerprint: Fingerprint::of(&Scope::global(), b"5 to bob"),
            outcome: Outcome::bytes("charged 5"),
            failed,
            left: Duration::from_secs(60),
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let (expires_at, fresh_until) = (Timestamp::from_millis(9), Timestamp::from_millis(7));
        for failed in [false, true] {
            let bytes = written(&kept(failed), expires_at, fresh_until);
            let row = read(&bytes).unwrap();
            assert_eq!((row.failed, row.fingerprint), (failed, kept(failed).fingerprint));
            assert_eq!((row.expires_at, row.fresh_until), (expires_at, fresh_until));
            assert_eq!(decode_outcome(row.outcome).unwrap(), kept(failed).outcome);
        }
    }

    #[test]
    fn what_is_cut_short_or_of_another_form_is_nothing() {
        let bytes = written(&kept(false), Timestamp::MAX, Timestamp::MAX);
        for length in 0..HEADER_BYTES {
            assert!(read(&bytes[..length]).is_none(), "{length} bytes");
        }
        for (at, value) in [(0, 2), (1, 7)] {
            let mut other = bytes.clone();
            other[at] = value;
            assert!(read(&other).is_none(), "byte {at} is {value}");
        }
        let cut = &bytes[..bytes.len() - 1];
        assert!(decode_outcome(read(cut).unwrap().outcome).is_err());
    }
}
