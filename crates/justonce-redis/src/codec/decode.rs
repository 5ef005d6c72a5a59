//! Reads records. Every byte is checked: by the check sums of the parts and of the head, and by the
//! ranges of values.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use justonce_core::codec::{decode_outcome, note_kind};
use justonce_core::store::Stored;
use justonce_core::{
    AfterRetention, AwaitingRetry, BackOff, Checkpoint, Damage, DamagedRecord, Entry, Failed,
    Fence, Fingerprint, InProgress, Key, MAX_NOTES, Note, OnFailure, OnLapsed, Outcome, Owner,
    Policy, Record, RecordId, Scope, Settled, State, Subject, Timeline, Timestamp, Token,
    Tombstone, Unknown, UnknownReason,
};

use super::frame::{
    FENCE_BYTES, FINGERPRINT_BYTES, HEAD_BYTES, LEASE_BYTES, MAGIC, POLICY_BYTES, RETENTION_BYTES,
    SUM_MODULUS, TOKEN_BYTES, VERSION, sum,
};

/// The scope and the key of a request.
pub(crate) type Requested<'a> = Option<(&'a Scope, &'a Key)>;

/// Reads a whole record with its timeline.
pub(crate) fn stored(id: &RecordId, bytes: &[u8]) -> Result<Stored, DamagedRecord> {
    checked(id, || {
        let parts = read_parts(id, bytes, None)?;
        let timeline = match &parts.entry {
            Entry::Tombstone(_) => Timeline::default(),
            Entry::Record(_) => timeline(&parts)?,
        };
        Ok(Stored { entry: parts.entry, timeline })
    })
}

/// Reads a record without its timeline. If the scope and the key of the request fit, they are
/// cloned rather than parsed.
pub(crate) fn entry(
    id: &RecordId,
    bytes: &[u8],
    requested: Requested<'_>,
) -> Result<Entry, DamagedRecord> {
    checked(id, || Ok(read_parts(id, bytes, requested)?.entry))
}

/// Reads the beginning of a record: the entry without its outcome, checkpoint and timeline.
pub(crate) fn summary(id: &RecordId, bytes: &[u8]) -> Result<Entry, DamagedRecord> {
    checked(id, || {
        let mut input = Input(bytes);
        let head = Head::read(&mut input)?;
        if head.state == b'T' {
            return Ok(head.tombstone());
        }
        let (subject, claim) = fixed(id, &head, None, &mut input)?;
        let reply = Reply { checkpoint: None, bytes: &[], is_there: false };
        Ok(Entry::Record(record(&head, subject, &claim, reply)?))
    })
}

fn checked<T>(id: &RecordId, read: impl FnOnce() -> Result<T, Damage>) -> Result<T, DamagedRecord> {
    read().map_err(|damage| DamagedRecord { id: *id, damage })
}

/// The head, the entry, and the parts that the timeline is read from.
struct Parts<'a> {
    head: Head,
    entry: Entry,
    owner: &'a str,
    history: &'a [u8],
}

fn read_parts<'a>(
    id: &RecordId,
    bytes: &'a [u8],
    requested: Requested<'_>,
) -> Result<Parts<'a>, Damage> {
    let mut input = Input(bytes);
    let head = Head::read(&mut input)?;
    if head.state == b'T' {
        return Ok(Parts { entry: head.tombstone(), head, owner: "", history: &[] });
    }
    let (subject, claim) = fixed(id, &head, requested, &mut input)?;
    let history = input.take(head.history_bytes)?;
    let checkpoint = match input.take(head.checkpoint_bytes)? {
        [] => None,
        bytes => Some(self::checkpoint(bytes)?.numbered(head.number)),
    };
    let bytes = input.take(head.reply_bytes)?;
    if !input.0.is_empty() {
        return Err(Damage::Content);
    }
    let bytes = if head.state == b'C' { behind_fence(&head, bytes)? } else { bytes };
    let entry = record(&head, subject, &claim, Reply { checkpoint, bytes, is_there: true })?;
    Ok(Parts { head, entry: Entry::Record(entry), owner: claim.owner, history })
}

/// The outcome of a completed record. Its fence comes first.
fn behind_fence<'a>(head: &Head, reply: &'a [u8]) -> Result<&'a [u8], Damage> {
    let (fence, outcome) = reply.split_at_checked(FENCE_BYTES).ok_or(Damage::Truncated)?;
    if fence == head.fence.to_be_bytes() { Ok(outcome) } else { Err(Damage::Checksum) }
}

/// Bytes from which parts are taken.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Damage::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Damage::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, Damage> {
        self.array().map(|[byte]| byte)
    }

    fn short(&mut self) -> Result<u16, Damage> {
        self.array().map(u16::from_be_bytes)
    }

    fn number(&mut self) -> Result<u32, Damage> {
        self.array().map(u32::from_be_bytes)
    }

    fn long(&mut self) -> Result<u64, Damage> {
        self.array().map(u64::from_be_bytes)
    }

    fn moment(&mut self) -> Result<Timestamp, Damage> {
        self.long().map(Timestamp::from_millis)
    }

    /// A duration in so many bytes, eight at most.
    fn duration<const BYTES: usize>(&mut self) -> Result<Duration, Damage> {
        let bytes = self.array::<BYTES>()?;
        let millis = bytes.iter().fold(0, |millis, byte| (millis << 8) | u64::from(*byte));
        Ok(Duration::from_millis(millis))
    }

    fn word(&mut self) -> Result<&'a str, Damage> {
        let length = self.short()?;
        text(self.take(usize::from(length))?)
    }
}

fn text(bytes: &[u8]) -> Result<&str, Damage> {
    std::str::from_utf8(bytes).map_err(|_| Damage::Content)
}

/// The part that the scripts decide by.
struct Head {
    state: u8,
    fence: u64,
    attempt: u32,
    created: Timestamp,
    changed: Timestamp,
    till: Timestamp,
    also: Timestamp,
    number: u32,
    dropped: u32,
    notes: u8,
    claim_bytes: usize,
    subject_bytes: usize,
    history_bytes: usize,
    checkpoint_bytes: usize,
    reply_bytes: usize,
}

impl Head {
    fn read(input: &mut Input<'_>) -> Result<Self, Damage> {
        if input.0.len() < HEAD_BYTES {
            return Err(Damage::Truncated);
        }
        if input.byte()? != MAGIC {
            return Err(Damage::Foreign);
        }
        let version = input.byte()?;
        if version != VERSION {
            return Err(Damage::Version(version));
        }
        let state = input.byte()?;
        // Whether the claim has waiters: only the scripts use it.
        let _has_waiters = input.byte()?;
        let sum = input.number()?;
        let head = Self {
            state,
            fence: input.long()?,
            attempt: input.number()?,
            created: input.moment()?,
            changed: input.moment()?,
            till: input.moment()?,
            also: input.moment()?,
            number: input.number()?,
            dropped: input.number()?,
            notes: input.byte()?,
            claim_bytes: usize::from(input.short()?),
            subject_bytes: usize::from(input.short()?),
            history_bytes: length(input.number()?)?,
            checkpoint_bytes: length(input.number()?)?,
            reply_bytes: length(input.number()?)?,
        };
        if head.sum() == u128::from(sum) { Ok(head) } else { Err(Damage::Checksum) }
    }

    fn tombstone(&self) -> Entry {
        let (since, until) = (self.also, self.till);
        Entry::Tombstone(Tombstone { fence: Fence::new(self.fence), since, until })
    }

    /// The same sum as the scripts compute.
    fn sum(&self) -> u128 {
        let parts = [
            (1, self.fence),
            (3, u64::from(self.attempt)),
            (5, self.created.as_millis()),
            (7, self.changed.as_millis()),
            (11, self.till.as_millis()),
            (13, self.also.as_millis()),
            (17, u64::from(self.number)),
            (19, u64::from(self.dropped)),
            (23, u64::from(self.notes)),
            (29, u64::from(self.state)),
            (31, self.claim_bytes as u64),
            (37, self.subject_bytes as u64),
            (41, self.checkpoint_bytes as u64),
            (43, self.reply_bytes as u64),
            (47, self.history_bytes as u64),
        ];
        let sum: u128 = parts.iter().map(|(factor, part)| factor * u128::from(*part)).sum();
        sum % SUM_MODULUS
    }
}

fn length(bytes: u32) -> Result<usize, Damage> {
    usize::try_from(bytes).map_err(|_| Damage::Content)
}

/// A claim.
struct Claim<'a> {
    owner: &'a str,
    token: Token,
    policy: Policy,
}

/// Reads the parts that every record has.
fn fixed<'a>(
    id: &RecordId,
    head: &Head,
    requested: Requested<'_>,
    input: &mut Input<'a>,
) -> Result<(Subject, Claim<'a>), Damage> {
    let print = input.take(FINGERPRINT_BYTES)?;
    let claim = claim(input.take(head.claim_bytes)?)?;
    let subject = subject(id, head, requested, print, input.take(head.subject_bytes)?)?;
    Ok((subject, claim))
}

fn claim(bytes: &[u8]) -> Result<Claim<'_>, Damage> {
    let mut input = Input(bytes);
    let summed = bytes.get(..POLICY_BYTES + TOKEN_BYTES).ok_or(Damage::Truncated)?;
    let policy = policy(&mut input)?;
    let token = Token(u128::from_be_bytes(input.array()?));
    let expected = input.long()?;
    if sum(&[summed, input.0]) != expected {
        return Err(Damage::Checksum);
    }
    Ok(Claim { owner: text(input.0)?, token, policy })
}

fn policy(input: &mut Input<'_>) -> Result<Policy, Damage> {
    let on_lapsed = match input.byte()? {
        0 => OnLapsed::Rerun,
        1 => OnLapsed::Resume,
        2 => OnLapsed::Hold,
        _ => return Err(Damage::Content),
    };
    let on_failure = input.byte()?;
    let max_attempts = NonZeroU32::new(input.number()?);
    let (lease, cap) = (input.duration::<LEASE_BYTES>()?, input.duration::<LEASE_BYTES>()?);
    let mut long = || input.duration::<RETENTION_BYTES>();
    let (retention, refuse, first, max) = (long()?, long()?, long()?, long()?);
    let after = if refuse.is_zero() { AfterRetention::New } else { AfterRetention::Refuse(refuse) };
    let on_failure = match on_failure {
        0 => OnFailure::Replay,
        1 => OnFailure::Release,
        2 => OnFailure::Retry(BackOff { first, max }),
        _ => return Err(Damage::Content),
    };
    let policy = Policy::builder()
        .lease(lease)
        .lease_cap(cap)
        .on_lapsed(on_lapsed)
        .on_failure(on_failure)
        .max_attempts(max_attempts)
        .retention(retention)
        .after_retention(after);
    policy.build().map_err(|_| Damage::Content)
}

fn subject(
    id: &RecordId,
    head: &Head,
    requested: Requested<'_>,
    print: &[u8],
    bytes: &[u8],
) -> Result<Subject, Damage> {
    let mut input = Input(bytes);
    let expected = input.long()?;
    let summed = input.0;
    let scope = input.word()?;
    if sum(&[id.as_bytes(), print, summed]) != expected {
        return Err(Damage::Checksum);
    }
    let mut print = Input(print);
    let fits = requested.filter(|(requested_scope, key)| {
        requested_scope.as_str() == scope && key.as_str().as_bytes() == input.0
    });
    let (scope, key) = match fits {
        Some((scope, key)) => (scope.clone(), key.clone()),
        None => (
            Scope::parse(scope).map_err(|_| Damage::Content)?,
            Key::client(text(input.0)?).map_err(|_| Damage::Content)?,
        ),
    };
    Ok(Subject {
        scope,
        key,
        fingerprint: Fingerprint::from_parts(print.byte()?, print.array()?),
        created_at: head.created,
    })
}

/// Reads a checkpoint without its number.
pub(crate) fn checkpoint(bytes: &[u8]) -> Result<Checkpoint, Damage> {
    let mut input = Input(bytes);
    let expected = input.long()?;
    if sum(&[input.0]) != expected {
        return Err(Damage::Checksum);
    }
    let name = input.word()?;
    Checkpoint::new(name, Bytes::copy_from_slice(input.0)).map_err(|_| Damage::Content)
}

/// The checkpoint and the reply of a record. A summary has neither.
struct Reply<'a> {
    checkpoint: Option<Checkpoint>,
    bytes: &'a [u8],
    is_there: bool,
}

impl Reply<'_> {
    fn outcome(&self) -> Result<Outcome, Damage> {
        match self.bytes {
            [] => Ok(Outcome::empty()),
            bytes => decode_outcome(bytes),
        }
    }

    fn reason(&self) -> Result<UnknownReason, Damage> {
        if !self.is_there {
            return Ok(UnknownReason::Lapsed);
        }
        UnknownReason::parse(text(self.bytes)?).ok_or(Damage::Content)
    }
}

fn record(
    head: &Head,
    subject: Subject,
    claim: &Claim<'_>,
    reply: Reply<'_>,
) -> Result<Record, Damage> {
    let Claim { owner, token, policy } = *claim;
    let settled = |reply: &Reply<'_>| {
        let after_retention = policy.after_retention();
        reply.outcome().map(|outcome| Settled { outcome, expires_at: head.till, after_retention })
    };
    let state = match head.state {
        b'C' => State::Completed(settled(&reply)?),
        b'F' => State::Failed(Failed::Final(settled(&reply)?)),
        b'P' => State::InProgress(InProgress {
            owner: Owner::new(owner),
            token,
            claimed_at: head.also,
            lease_until: head.till,
            policy: Arc::new(policy),
            checkpoint: reply.checkpoint,
        }),
        b'W' => State::Failed(Failed::AwaitingRetry(AwaitingRetry {
            // A summary has no failure, but shows whether there is one.
            failure: match reply.is_there || head.reply_bytes == 0 {
                true => reply.outcome()?,
                false => Outcome::bytes("not read"),
            },
            retry_at: head.till,
            expires_at: head.also,
            policy: Arc::new(policy),
            checkpoint: reply.checkpoint,
        })),
        b'U' => State::Unknown(Unknown {
            reason: reply.reason()?,
            owner: Owner::new(owner),
            policy: Arc::new(policy),
            checkpoint: reply.checkpoint,
        }),
        _ => return Err(Damage::Content),
    };
    Ok(Record {
        subject: Arc::new(subject),
        fence: Fence::new(head.fence),
        attempt: head.attempt,
        changed_at: head.changed,
        state,
    })
}

fn timeline(parts: &Parts<'_>) -> Result<Timeline, Damage> {
    let head = &parts.head;
    if head.notes == 0 && parts.history.is_empty() {
        return timeline_of_head(parts);
    }
    let mut input = Input(parts.history);
    let count = usize::from(head.notes);
    if count > MAX_NOTES {
        return Err(Damage::Content);
    }
    let mut notes = Vec::with_capacity(count);
    for _ in 0..count {
        let length = input.short()?;
        let mut words = Input(input.take(usize::from(length))?);
        let (at, fence) = (input.moment()?, Fence::new(input.long()?));
        let name = words.word()?;
        let mut rest = Vec::new();
        while !words.0.is_empty() {
            rest.push(words.word()?);
        }
        let kind = note_kind(name, &rest).ok_or(Damage::Content)?;
        notes.push(Note { at, fence, kind });
    }
    if !input.0.is_empty() {
        return Err(Damage::Content);
    }
    Ok(Timeline::from_parts(notes, head.dropped))
}

/// The timeline of a record without notes: it was claimed once, and completed by that owner.
fn timeline_of_head(parts: &Parts<'_>) -> Result<Timeline, Damage> {
    let head = &parts.head;
    let note = |at, name, words: &[&str]| {
        let kind = note_kind(name, words).ok_or(Damage::Content)?;
        Ok(Note { at, fence: Fence::new(head.fence), kind })
    };
    let mut notes = vec![note(head.created, "claimed", &[parts.owner])?];
    if head.state == b'C' {
        notes.push(note(head.changed, "completed", &[])?);
    }
    Ok(Timeline::from_parts(notes, head.dropped))
}
