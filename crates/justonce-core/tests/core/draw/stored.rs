//! Stored records of every kind.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::Stored;
use justonce_core::{
    AfterRetention, AwaitingRetry, BackOff, Checkpoint, Entropy, Entry, Failed, Fence, Fingerprint,
    HowResolved, InProgress, Key, Note, NoteKind, OnFailure, OnLapsed, Outcome, Owner, Policy,
    Record, RecordId, RefusedStep, Resolver, Scope, Settled, State, Subject, Timeline, Timestamp,
    Token, Tombstone, Unknown, Why,
};
use proptest::prelude::*;

use super::steps::reason;

pub(crate) fn id() -> impl Strategy<Value = RecordId> {
    any::<[u8; 32]>().prop_map(RecordId::from_bytes)
}

fn time() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp::from_millis)
}

fn fence() -> impl Strategy<Value = Fence> {
    any::<u64>().prop_map(Fence::new)
}

fn millis(least: u64, most: u64) -> impl Strategy<Value = Duration> {
    (least..=most).prop_map(Duration::from_millis)
}

fn after_retention() -> impl Strategy<Value = AfterRetention> {
    prop_oneof![Just(AfterRetention::New), millis(1, 1 << 38).prop_map(AfterRetention::Refuse),]
}

fn on_failure() -> impl Strategy<Value = OnFailure> {
    prop_oneof![
        Just(OnFailure::Replay),
        Just(OnFailure::Release),
        (millis(0, 1 << 20), millis(0, 1 << 20)).prop_map(|(first, more)| {
            let max = first + more;
            OnFailure::Retry(BackOff { first, max })
        }),
    ]
}

fn policy() -> impl Strategy<Value = Arc<Policy>> {
    let on_lapsed = prop::sample::select(vec![OnLapsed::Rerun, OnLapsed::Resume, OnLapsed::Hold]);
    let times = (millis(10, 1 << 28), millis(0, 1 << 28), millis(1, 1 << 38));
    (times, on_lapsed, on_failure(), any::<u32>(), after_retention()).prop_map(
        |((lease, more, retention), on_lapsed, on_failure, attempts, after_retention)| {
            let policy = Policy::builder()
                .lease(lease)
                .lease_cap(lease + more)
                .retention(retention)
                .on_lapsed(on_lapsed)
                .on_failure(on_failure)
                .max_attempts(NonZeroU32::new(attempts))
                .after_retention(after_retention);
            Arc::new(policy.build().expect("a valid policy"))
        },
    )
}

/// Bodies of all sizes around the limit of compression, some that compress and some that do not.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let noise = |(size, seed): (usize, u64)| {
        let entropy = Entropy::seeded(seed);
        let bytes = std::iter::repeat_with(|| entropy.next_u64().to_le_bytes());
        bytes.flatten().take(size).collect::<Vec<u8>>()
    };
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..64),
        1 => (any::<u8>(), 500_usize..1500).prop_map(|(byte, size)| vec![byte; size]),
        1 => (any::<u8>(), 0_usize..200_000).prop_map(|(byte, size)| vec![byte; size]),
        1 => (500_usize..1500, any::<u64>()).prop_map(noise),
        1 => (0_usize..200_000, any::<u64>()).prop_map(noise),
    ]
}

pub(crate) fn outcome() -> impl Strategy<Value = Outcome> {
    let headers =
        prop::collection::vec(("[a-z-]{1,20}", prop::collection::vec(any::<u8>(), 0..30)), 0..6);
    let too_large = prop::option::weighted(0.1, any::<u64>());
    (any::<Option<u16>>(), headers, body(), too_large).prop_map(
        |(status, headers, body, too_large)| {
            let mut builder = Outcome::builder();
            if let Some(status) = status {
                builder = builder.status(status);
            }
            for (name, value) in headers {
                builder = builder.header(name, value);
            }
            builder = match too_large {
                Some(size) => builder.too_large(size),
                None => builder.body(body),
            };
            builder.build().expect("few headers")
        },
    )
}

fn checkpoint() -> impl Strategy<Value = Option<Checkpoint>> {
    let point = ("\\PC{1,30}", prop::collection::vec(any::<u8>(), 0..2000));
    prop::option::of(point.prop_map(|(name, data)| Checkpoint::new(&name, data).expect("small")))
}

fn owner() -> impl Strategy<Value = Owner> {
    any::<String>().prop_map(|name| Owner::new(&name))
}

fn settled() -> impl Strategy<Value = Settled> {
    (outcome(), time(), after_retention()).prop_map(|(outcome, expires_at, after_retention)| {
        Settled { outcome, expires_at, after_retention }
    })
}

fn in_progress() -> impl Strategy<Value = State> {
    (owner(), any::<u128>(), time(), time(), policy(), checkpoint()).prop_map(
        |(owner, token, claimed_at, lease_until, policy, checkpoint)| {
            State::InProgress(InProgress {
                owner,
                token: Token(token),
                claimed_at,
                lease_until,
                policy,
                checkpoint,
            })
        },
    )
}

fn waiting() -> impl Strategy<Value = State> {
    (outcome(), time(), time(), policy(), checkpoint()).prop_map(
        |(failure, retry_at, expires_at, policy, checkpoint)| {
            State::Failed(Failed::AwaitingRetry(AwaitingRetry {
                failure,
                retry_at,
                expires_at,
                policy,
                checkpoint,
            }))
        },
    )
}

fn unknown() -> impl Strategy<Value = State> {
    (reason(), owner(), policy(), checkpoint()).prop_map(|(reason, owner, policy, checkpoint)| {
        State::Unknown(Unknown { reason, owner, policy, checkpoint })
    })
}

pub(crate) fn scope() -> impl Strategy<Value = Scope> {
    prop::collection::btree_map("[a-z0-9_]{1,8}", "\\PC{0,12}|[&=%~\n\t]{0,6}", 0..4).prop_map(
        |parts| {
            let builder =
                parts.into_iter().fold(Scope::builder(), |b, (name, value)| b.part(name, value));
            builder.build().expect("a small scope")
        },
    )
}

fn subject() -> impl Strategy<Value = Arc<Subject>> {
    let fingerprint = (any::<u8>(), any::<[u8; 32]>());
    (scope(), "[ -~]{1,40}", fingerprint, time()).prop_map(|(scope, key, (version, digest), at)| {
        Arc::new(Subject {
            scope,
            key: Key::client(key).expect("a valid key"),
            fingerprint: Fingerprint::from_parts(version, digest),
            created_at: at,
        })
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    let state = prop_oneof![
        in_progress(),
        settled().prop_map(State::Completed),
        settled().prop_map(|settled| State::Failed(Failed::Final(settled))),
        waiting(),
        unknown(),
    ];
    let record = (subject(), fence(), any::<u32>(), time(), state).prop_map(
        |(subject, fence, attempt, changed_at, state)| {
            Entry::Record(Record { subject, fence, attempt, changed_at, state })
        },
    );
    let tombstone = (fence(), time(), time())
        .prop_map(|(fence, since, until)| Entry::Tombstone(Tombstone { fence, since, until }));
    prop_oneof![9 => record, 1 => tombstone]
}

fn resolved() -> impl Strategy<Value = NoteKind> {
    let how = vec![HowResolved::Completed, HowResolved::Failed, HowResolved::Released];
    let by = (0..3, any::<String>()).prop_map(|(kind, name)| match kind {
        0 => Resolver::probe(&name),
        1 => Resolver::callback(&name),
        _ => Resolver::operator(&name),
    });
    (by, prop::sample::select(how), any::<String>())
        .prop_map(|(by, how, why)| NoteKind::Resolved(by, how, Why::new(&why)))
}

fn note() -> impl Strategy<Value = Note> {
    let refused = vec![
        RefusedStep::Complete,
        RefusedStep::Fail,
        RefusedStep::Release,
        RefusedStep::Renew,
        RefusedStep::Checkpoint,
        RefusedStep::Abandon,
        RefusedStep::Resolve,
    ];
    let kind = prop_oneof![
        owner().prop_map(NoteKind::Claimed),
        owner().prop_map(NoteKind::TakenOver),
        "\\PC{1,20}".prop_map(|name| NoteKind::Checkpointed(Arc::from(name))),
        Just(NoteKind::Completed),
        Just(NoteKind::FailedForNow),
        Just(NoteKind::FailedForGood),
        reason().prop_map(NoteKind::GivenUp),
        reason().prop_map(NoteKind::Held),
        prop::sample::select(refused).prop_map(NoteKind::Refused),
        resolved(),
        Just(NoteKind::Released),
    ];
    (time(), fence(), kind).prop_map(|(at, fence, kind)| Note { at, fence, kind })
}

/// Any record that a store may keep.
pub(crate) fn stored() -> impl Strategy<Value = Stored> {
    let notes = prop::collection::vec(note(), 0..=justonce_core::MAX_NOTES);
    (entry(), notes, any::<u32>()).prop_map(|(entry, notes, dropped)| Stored {
        entry,
        timeline: Timeline::from_parts(notes, dropped),
    })
}
