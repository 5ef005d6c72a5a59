//! The parts of a record that a step brings along.

use std::num::NonZeroU32;
use std::time::Duration;

use justonce_core::codec::encode_outcome;
use justonce_core::{
    AfterRetention, Begin, Checkpoint, Fingerprint, OnFailure, OnLapsed, Outcome, Policy, RecordId,
};

use super::frame::{FINGERPRINT_BYTES, PROMISE_BYTES, SUM_BYTES, TOKEN_BYTES, sum};

/// Version and digest.
pub(crate) fn fingerprint(print: &Fingerprint) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FINGERPRINT_BYTES);
    bytes.push(print.version());
    bytes.extend_from_slice(print.digest());
    bytes
}

/// What belongs to one claim: the promise, the token, their check sum, the owner.
pub(crate) fn claim(begin: &Begin) -> Vec<u8> {
    let owner = begin.owner.as_str().as_bytes();
    let mut bytes = Vec::with_capacity(PROMISE_BYTES + TOKEN_BYTES + SUM_BYTES + owner.len());
    promise(&begin.policy, &mut bytes);
    bytes.extend_from_slice(&begin.token.0.to_be_bytes());
    let sum = sum(&[&bytes, owner]);
    bytes.extend_from_slice(&sum.to_be_bytes());
    bytes.extend_from_slice(owner);
    bytes
}

fn promise(policy: &Policy, bytes: &mut Vec<u8>) {
    let none = Duration::ZERO;
    let (on_failure, first, max) = match policy.on_failure() {
        OnFailure::Replay => (0, none, none),
        OnFailure::Release => (1, none, none),
        OnFailure::Retry(back_off) => (2, back_off.first, back_off.max),
    };
    let refuse = match policy.after_retention() {
        AfterRetention::New => none,
        AfterRetention::Refuse(life) => life,
    };
    bytes.push(match policy.on_lapsed() {
        OnLapsed::Rerun => 0,
        OnLapsed::Resume => 1,
        OnLapsed::Hold => 2,
    });
    bytes.push(on_failure);
    bytes.extend_from_slice(&policy.max_attempts().map_or(0, NonZeroU32::get).to_be_bytes());
    let durations = [policy.lease(), policy.lease_cap(), policy.retention(), refuse, first, max];
    for duration in durations {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        bytes.extend_from_slice(&millis.to_be_bytes());
    }
}

/// Which operation the record is about: a check sum, the length of the scope, the scope, the key.
/// The sum covers the record's name and the fingerprint, so that a record under another name is
/// noticed.
pub(crate) fn subject(id: &RecordId, begin: &Begin) -> Vec<u8> {
    let (scope, key) = (begin.scope.as_str().as_bytes(), begin.key.as_str().as_bytes());
    let length = u16::try_from(scope.len()).unwrap_or(u16::MAX).to_be_bytes();
    let print = fingerprint(&begin.fingerprint);
    let sum = sum(&[id.as_bytes(), &print, &length, scope, key]);
    let mut bytes = Vec::with_capacity(SUM_BYTES + 2 + scope.len() + key.len());
    bytes.extend_from_slice(&sum.to_be_bytes());
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(scope);
    bytes.extend_from_slice(key);
    bytes
}

/// A check sum, the length of the name, the name, the data. The number lies in the head.
pub(crate) fn checkpoint(point: &Checkpoint) -> Vec<u8> {
    let name = point.name().as_bytes();
    let length = u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes();
    let sum = sum(&[&length, name, point.data()]);
    let mut bytes = Vec::with_capacity(SUM_BYTES + 2 + name.len() + point.data().len());
    bytes.extend_from_slice(&sum.to_be_bytes());
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(point.data());
    bytes
}

/// An outcome; one that has nothing to say takes no bytes.
pub(crate) fn outcome(outcome: &Outcome) -> Vec<u8> {
    if *outcome == Outcome::empty() { Vec::new() } else { encode_outcome(outcome) }
}
