//! The sizes of the parts of a record, and their check sum.

use justonce_core::{MAX_LEASE, MAX_RETENTION};
use xxhash_rust::xxh3::Xxh3;

/// The version of the layout that this release writes.
pub(super) const VERSION: u8 = 3;
/// The first byte of every record.
pub(super) const MAGIC: u8 = b'J';
/// The head, in bytes.
pub(super) const HEAD_BYTES: usize = 77;
/// Version and digest of a fingerprint, in bytes.
pub(super) const FINGERPRINT_BYTES: usize = 33;
/// A policy, in bytes.
pub(super) const POLICY_BYTES: usize = 34;
/// A lease in milliseconds, in bytes: up to [`MAX_LEASE`].
pub(super) const LEASE_BYTES: usize = 4;
/// A retention in milliseconds, in bytes: up to [`MAX_RETENTION`].
pub(super) const RETENTION_BYTES: usize = 5;
const _: () = assert!(MAX_LEASE.as_millis() < 1 << (8 * LEASE_BYTES));
const _: () = assert!(MAX_RETENTION.as_millis() < 1 << (8 * RETENTION_BYTES));
/// The token of a begin, in bytes.
pub(super) const TOKEN_BYTES: usize = 16;
/// A fence, in bytes.
pub(super) const FENCE_BYTES: usize = 8;
/// A check sum, in bytes.
pub(super) const SUM_BYTES: usize = 8;
/// The check sum of a head is taken modulo the largest prime below 2^32.
pub(super) const SUM_MODULUS: u128 = 4_294_967_291;
/// The head, the fingerprint, the claim and the subject, each as large as it may be, in bytes:
/// enough for a summary.
pub(crate) const SUMMARY_BYTES: usize = 2048;

/// The check sum of parts that the scripts only copy (XXH3).
pub(super) fn sum(parts: &[&[u8]]) -> u64 {
    let mut hasher = Xxh3::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.digest()
}
