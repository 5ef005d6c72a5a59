//! The format of stored records is frozen: bytes written by an earlier release are read for ever,
//! and this release writes the same bytes.
//!
//! Each fixture is the encoding of one value that is built here, under the name [`id`]. The file
//! names begin with the version of the format: `record-v1-completed.bin`.
//!
//! To add fixtures, add their values to [`expected`] and run
//!
//! ```text
//! JUSTONCE_WRITE_FIXTURES=1 cargo test -p justonce-core --test core codec_fixtures
//! ```
//!
//! It writes what is missing, and fails if it had to, so that nobody relies on fixtures that are
//! not committed. It never changes a file that exists. For a new version of the format, raise
//! `FORMAT_VERSION`, keep the files of the old version and give them no value in [`written_now`]
//! any more: they must still be read, but this release no longer writes them.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::codec::{FORMAT_VERSION, decode, encode};
use justonce_core::store::Stored;
use justonce_core::{
    AfterRetention, AwaitingRetry, BackOff, Checkpoint, Entry, Failed, Fence, Fingerprint,
    HowResolved, InProgress, Key, Note, NoteKind, OnFailure, OnLapsed, Outcome, Owner, Policy,
    Record, RecordId, RefusedStep, Resolver, Scope, Settled, State, StateName, Subject, Timeline,
    Timestamp, Token, Tombstone, Unknown, UnknownReason, Why,
};

const WRITE: &str = "JUSTONCE_WRITE_FIXTURES";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn id() -> RecordId {
    RecordId::from_bytes([0xa5; 32])
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis((1_700_000_000 + seconds) * 1000 + 123)
}

fn policy() -> Arc<Policy> {
    let policy = Policy::builder()
        .lease(Duration::from_secs(45))
        .lease_cap(Duration::from_secs(600))
        .on_lapsed(OnLapsed::Resume)
        .on_failure(OnFailure::Retry(BackOff {
            first: Duration::from_millis(250),
            max: Duration::from_secs(30),
        }))
        .max_attempts(NonZeroU32::new(7))
        .retention(Duration::from_secs(72 * 3600))
        .after_retention(AfterRetention::Refuse(Duration::from_secs(30 * 24 * 3600)));
    Arc::new(policy.build().expect("a valid policy"))
}

/// A record in this state with a note of every kind that belongs to it.
fn record(state: State, kinds: Vec<NoteKind>) -> Stored {
    let scope = Scope::parse("operation=charge&tenant=ac%26me").expect("a canonical text");
    let subject = Subject {
        fingerprint: Fingerprint::from_parts(Fingerprint::BLAKE3, [7; 32]),
        // An issued key, so that its characters are those of a common key.
        key: Key::issued(at(0), &justonce_core::Entropy::seeded(1)),
        created_at: at(0),
        scope,
    };
    let notes = kinds.into_iter().zip(0..).map(|(kind, number)| Note {
        at: at(number),
        fence: Fence::new(40 + number),
        kind,
    });
    Stored {
        entry: Entry::Record(Record {
            subject: Arc::new(subject),
            fence: Fence::new(42),
            attempt: 3,
            changed_at: at(10),
            state,
        }),
        timeline: Timeline::from_parts(notes, 5),
    }
}

fn outcome(body: Vec<u8>) -> Outcome {
    let builder = Outcome::builder()
        .status(201)
        .header("location", "/payments/17")
        .header("x-binary", vec![0, 255, 128])
        .body(body);
    builder.build().expect("few headers")
}

fn settled(outcome: Outcome) -> Settled {
    Settled {
        outcome,
        expires_at: at(3600),
        after_retention: AfterRetention::Refuse(Duration::from_secs(60)),
    }
}

fn checkpoint() -> Option<Checkpoint> {
    Some(Checkpoint::new("charged", vec![1, 2, 3, 0, 255]).expect("a valid checkpoint"))
}

fn in_progress() -> Stored {
    let state = State::InProgress(InProgress {
        owner: Owner::new("gateway-1"),
        token: Token(0x0123_4567_89ab_cdef_0011_2233_4455_6677),
        claimed_at: at(5),
        lease_until: at(50),
        policy: policy(),
        checkpoint: checkpoint(),
    });
    let notes = vec![
        NoteKind::Claimed(Owner::new("gateway-0")),
        NoteKind::GivenUp(UnknownReason::Dropped),
        NoteKind::TakenOver(Owner::new("gateway-1")),
        NoteKind::Checkpointed(Arc::from("charged")),
        NoteKind::Refused(RefusedStep::Renew),
    ];
    record(state, notes)
}

fn failed_for_now() -> Stored {
    let state = State::Failed(Failed::AwaitingRetry(AwaitingRetry {
        failure: Outcome::bytes("no luck"),
        retry_at: at(20),
        expires_at: at(4000),
        policy: policy(),
        checkpoint: checkpoint(),
    }));
    record(state, vec![NoteKind::FailedForNow, NoteKind::Released])
}

fn unknown() -> Stored {
    let rerun = Policy::builder().on_lapsed(OnLapsed::Rerun);
    let state = State::Unknown(Unknown {
        reason: UnknownReason::AttemptsExhausted,
        owner: Owner::new("gateway-1"),
        policy: Arc::new(rerun.build().expect("a valid policy")),
        checkpoint: None,
    });
    record(state, vec![NoteKind::Held(UnknownReason::AttemptsExhausted)])
}

fn completed() -> Stored {
    let resolved = NoteKind::Resolved(
        Resolver::probe("bank"),
        HowResolved::Completed,
        Why::new("the bank has it"),
    );
    record(
        State::Completed(settled(outcome(b"{\"id\": 17}".to_vec()))),
        vec![NoteKind::Completed, resolved],
    )
}

fn compressed() -> Stored {
    let body = b"the same words again and again; ".repeat(256);
    record(State::Completed(settled(outcome(body))), vec![NoteKind::Completed])
}

/// The trailers of a response, which are headers with a colon in front.
fn with_trailers() -> Stored {
    let outcome = Outcome::builder()
        .status(200)
        .header("content-type", "application/grpc")
        .header(":grpc-status", "0")
        .header(":grpc-status-details-bin", "CAUSBG5vcGU")
        .body(vec![0, 0, 0, 0, 2, 8, 1]);
    let settled = settled(outcome.build().expect("few headers"));
    record(State::Completed(settled), vec![NoteKind::Completed])
}

fn too_large() -> Stored {
    let large = Outcome::builder().too_large(5_000_000_000).build();
    let settled = settled(large.expect("no headers"));
    record(State::Completed(settled), vec![])
}

fn failed_for_good() -> Stored {
    let settled = Settled { after_retention: AfterRetention::New, ..settled(Outcome::empty()) };
    record(State::Failed(Failed::Final(settled)), vec![NoteKind::FailedForGood])
}

fn tombstone() -> Stored {
    Stored {
        entry: Entry::Tombstone(Tombstone {
            fence: Fence::new(42),
            since: at(3600),
            until: at(7200),
        }),
        timeline: Timeline::default(),
    }
}

/// Every fixture of version 1 with the value it must be read as.
fn version_1() -> Vec<(&'static str, Stored)> {
    vec![
        ("record-v1-in-progress.bin", in_progress()),
        ("record-v1-completed.bin", completed()),
        ("record-v1-completed-compressed.bin", compressed()),
        ("record-v1-completed-too-large.bin", too_large()),
        ("record-v1-completed-with-trailers.bin", with_trailers()),
        ("record-v1-failed-for-now.bin", failed_for_now()),
        ("record-v1-failed-for-good.bin", failed_for_good()),
        ("record-v1-unknown.bin", unknown()),
        ("record-v1-tombstone.bin", tombstone()),
    ]
}

/// What version 2 adds: notes with what the owner saw.
fn version_2() -> Vec<(&'static str, Stored)> {
    let cause = || Why::new("status=500 phase=answered upstream=http://10.0.0.9:9000");
    let mut stored = unknown();
    for kind in [
        NoteKind::GivenUpBecause(UnknownReason::TimedOut, cause()),
        NoteKind::HeldBecause(UnknownReason::Reported, cause()),
    ] {
        stored.timeline.push(Note { at: at(90), fence: Fence::new(42), kind });
    }
    vec![("record-v2-unknown-with-cause.bin", stored)]
}

/// Every fixture of every version.
fn expected() -> Vec<(&'static str, Stored)> {
    version_1().into_iter().chain(version_2()).collect()
}

/// The fixtures of the versions that this release writes: each record in the oldest that can say
/// it.
fn written_now() -> Vec<(&'static str, Stored)> {
    expected()
}

/// The bytes of every fixture. Missing ones are written if that was asked for, and fail the test
/// either way.
fn with_bytes(fixtures: Vec<(&'static str, Stored)>) -> Vec<(&'static str, Stored, Vec<u8>)> {
    let write = std::env::var_os(WRITE).is_some_and(|value| value == "1");
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for (name, stored) in fixtures {
        let path = folder().join(name);
        if let Ok(bytes) = std::fs::read(&path) {
            found.push((name, stored, bytes));
            continue;
        }
        missing.push(name);
        if write {
            std::fs::create_dir_all(folder()).expect("a folder can be made");
            std::fs::write(&path, encode(&id(), &stored)).expect("a file can be written");
        }
    }
    match (missing.is_empty(), write) {
        (true, _) => found,
        (false, true) => panic!("written, for you to look at and to commit: {missing:?}"),
        (false, false) => panic!("missing, run with {WRITE}=1 to write them: {missing:?}"),
    }
}

#[test]
fn every_fixture_is_read_as_the_value_it_was_written_from() {
    for (name, stored, bytes) in with_bytes(expected()) {
        let read = decode(&id(), &bytes);
        assert_eq!(read.as_ref(), Ok(&stored), "{name}: old records would be lost");
    }
}

#[test]
fn this_release_writes_the_same_bytes() {
    for (name, stored, frozen) in with_bytes(written_now()) {
        let same = encode(&id(), &stored) == frozen;
        assert!(same, "{name}: the format of a version never changes");
        let version = if name.starts_with("record-v1-") { 1 } else { FORMAT_VERSION };
        assert_eq!(frozen.get(1), Some(&version), "{name}");
    }
}

#[test]
fn one_fixture_is_compressed_and_the_others_are_not() {
    for (name, _, bytes) in with_bytes(version_1()) {
        let expected = u8::from(name.contains("compressed"));
        assert_eq!(bytes.get(2), Some(&expected), "{name}");
    }
}

#[test]
fn the_fixtures_of_version_1_have_every_state() {
    let states: BTreeSet<_> =
        version_1().iter().map(|(_, stored)| stored.entry.state_name()).collect();
    // What was released is kept as a failure that may be tried at once.
    let other = [StateName::Absent, StateName::Released];
    let kept = StateName::ALL.into_iter().filter(|state| !other.contains(state));
    assert_eq!(states, kept.collect());
}

#[test]
fn no_fixture_lies_about_unread() {
    let known: BTreeSet<String> = expected().iter().map(|(name, _)| (*name).to_owned()).collect();
    let there: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|file| file.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(there, known);
}
