//! The parts of a record that a step brings.

use std::num::NonZeroU32;
use std::time::Duration;

use justonce_core::codec::{append_outcome, encode_outcome};
use justonce_core::{
    AfterRetention, Begin, Checkpoint, Fence, OnFailure, OnLapsed, Outcome, Policy, RecordId,
};

use super::frame::{
    FINGERPRINT_BYTES, LEASE_BYTES, POLICY_BYTES, RETENTION_BYTES, SUM_BYTES, TOKEN_BYTES, sum,
};
use crate::layout::CLASS;

/// Four numbers, in bytes.
pub(crate) const TERMS_BYTES: usize = 32;
/// The head behind its moments, in bytes: a first claim knows these in advance.
const TAIL_BYTES: usize = 25;
/// The fence and a small outcome, in bytes.
const TYPICAL_COMPLETION_BYTES: usize = 256;
/// The share of the state and of the first attempt in the check sum of a head.
const FIRST_CLAIM: u64 = 29 * b'P' as u64 + 3;

/// A record that a begin creates. The script adds only time and fence.
pub(crate) struct NewClaim {
    /// Numbers for the script: the class of the claim in the index, its lease, the part of the
    /// head's check sum that depends on neither time nor fence, and the moment when it is late.
    pub(crate) terms: [u8; TERMS_BYTES],
    /// The record, from the number of its checkpoint in the head to its subject.
    pub(crate) body: Vec<u8>,
    /// The first checkpoint; mostly empty.
    pub(crate) checkpoint: Vec<u8>,
}

impl NewClaim {
    pub(crate) fn new(id: &RecordId, begin: &Begin) -> Self {
        let owner = begin.owner.as_str().as_bytes();
        let (scope, key) = (begin.scope.as_str().as_bytes(), begin.key.as_str().as_bytes());
        let checkpoint = begin.checkpoint.as_ref().map(checkpoint).unwrap_or_default();
        let claim = POLICY_BYTES + TOKEN_BYTES + SUM_BYTES + owner.len();
        let subject = SUM_BYTES + 2 + scope.len() + key.len();
        let known = TAIL_BYTES + FINGERPRINT_BYTES + claim + subject;
        let mut body = Vec::with_capacity(known);
        // No number of a checkpoint, no notes dropped, no notes beside those implied by the head.
        body.extend_from_slice(&[0; 9]);
        push_short(claim, &mut body);
        push_short(subject, &mut body);
        for length in [0, checkpoint.len(), 0] {
            body.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        }
        let print_at = body.len();
        body.push(begin.fingerprint.version());
        body.extend_from_slice(begin.fingerprint.digest());
        push_claim(begin, &mut body);
        push_subject(id, print_at, scope, key, &mut body);
        let lease = millis(begin.policy.lease());
        let sizes = 31 * claim + 37 * subject + 41 * checkpoint.len();
        let sum = FIRST_CLAIM + sizes as u64;
        let late = begin.late_from().map_or(u64::MAX, |late| late.as_millis());
        let parts =
            [class(&begin.policy), lease, sum.saturating_add(lease.saturating_mul(11)), late];
        let mut terms = [0; TERMS_BYTES];
        for (place, part) in terms.chunks_exact_mut(8).zip(parts) {
            place.copy_from_slice(&part.to_be_bytes());
        }
        Self { terms, body, checkpoint }
    }
}

/// The class of a claim in the index. Claims that are held when they lapse have their own: those
/// under `hold`, and those with a single attempt.
fn class(policy: &Policy) -> u64 {
    let only = policy.max_attempts() == Some(NonZeroU32::MIN);
    if only || policy.on_lapsed() == OnLapsed::Hold { CLASS } else { 0 }
}

/// A claim: the policy, the token, their check sum, the owner.
fn push_claim(begin: &Begin, bytes: &mut Vec<u8>) {
    let (at, owner) = (bytes.len(), begin.owner.as_str().as_bytes());
    policy(&begin.policy, bytes);
    bytes.extend_from_slice(&begin.token.0.to_be_bytes());
    let sum = sum(&[bytes.get(at..).unwrap_or_default(), owner]);
    bytes.extend_from_slice(&sum.to_be_bytes());
    bytes.extend_from_slice(owner);
}

/// The subject: a check sum, the length of the scope, the scope, the key. The sum also covers the
/// id and the fingerprint, which is at `print_at`, so that a record under another id is noticed.
fn push_subject(id: &RecordId, print_at: usize, scope: &[u8], key: &[u8], bytes: &mut Vec<u8>) {
    let length = u16::try_from(scope.len()).unwrap_or(u16::MAX).to_be_bytes();
    let print = bytes.get(print_at..print_at + FINGERPRINT_BYTES).unwrap_or_default();
    let sum = sum(&[id.as_bytes(), print, &length, scope, key]);
    bytes.extend_from_slice(&sum.to_be_bytes());
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(scope);
    bytes.extend_from_slice(key);
}

fn push_short(number: usize, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes());
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The last bytes of a number, which is not larger.
fn last<const BYTES: usize>(number: u64) -> [u8; BYTES] {
    let bytes = number.to_be_bytes();
    bytes.last_chunk().copied().unwrap_or([u8::MAX; BYTES])
}

fn policy(policy: &Policy, bytes: &mut Vec<u8>) {
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
    for lease in [policy.lease(), policy.lease_cap()] {
        bytes.extend_from_slice(&last::<LEASE_BYTES>(millis(lease)));
    }
    for duration in [policy.retention(), refuse, first, max] {
        bytes.extend_from_slice(&last::<RETENTION_BYTES>(millis(duration)));
    }
}

/// A check sum, the length of the name, the name, the data. The number is in the head.
pub(crate) fn checkpoint(checkpoint: &Checkpoint) -> Vec<u8> {
    let name = checkpoint.name().as_bytes();
    let length = u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes();
    let sum = sum(&[&length, name, checkpoint.data()]);
    let mut bytes = Vec::with_capacity(SUM_BYTES + 2 + name.len() + checkpoint.data().len());
    bytes.extend_from_slice(&sum.to_be_bytes());
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(checkpoint.data());
    bytes
}

/// An outcome; an empty one takes no bytes.
pub(crate) fn outcome(outcome: &Outcome) -> Vec<u8> {
    if *outcome == Outcome::empty() { Vec::new() } else { encode_outcome(outcome) }
}

/// The fence and the outcome: the argument of complete, and the reply of a completed record.
pub(crate) fn completion(fence: Fence, outcome: &Outcome) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(TYPICAL_COMPLETION_BYTES);
    bytes.extend_from_slice(&fence.get().to_be_bytes());
    if *outcome == Outcome::empty() { bytes } else { append_outcome(outcome, bytes) }
}
