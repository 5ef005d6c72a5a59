//! Tokens that were verified, so that a request does not cost a signature each.

use std::hash::BuildHasherDefault;

use justonce_core::store::IdHasher;
use justonce_http::VerifiedClaims;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::check::Times;

/// How much memory verified tokens may take, in bytes, as it is estimated.
const CACHE_BYTES: u64 = 16 * 1024 * 1024;
/// How many tokens that is, about.
const USUAL_TOKENS: usize = 4096;
/// What parsed claims take for each byte of a token, and what every entry takes.
const BYTES_PER_BYTE: u64 = 6;
const ENTRY_BYTES: u64 = 256;

/// A token that was verified.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) claims: VerifiedClaims,
    pub(crate) times: Times,
    /// The place of its issuer, and the generation of the keys that verified it.
    pub(crate) issuer: usize,
    pub(crate) generation: u64,
    pub(crate) length: u64,
}

/// By a hash of the token: the token itself is not kept.
pub(crate) type Tokens = Cache<
    [u8; 32],
    Entry,
    ByLength,
    BuildHasherDefault<IdHasher>,
    DefaultLifecycle<[u8; 32], Entry>,
>;

#[derive(Clone)]
pub(crate) struct ByLength;

impl Weighter<[u8; 32], Entry> for ByLength {
    fn weight(&self, _: &[u8; 32], entry: &Entry) -> u64 {
        entry.length.saturating_mul(BYTES_PER_BYTE).saturating_add(ENTRY_BYTES)
    }
}

/// An empty cache.
pub(crate) fn tokens() -> Tokens {
    let (hasher, lifecycle) = (BuildHasherDefault::default(), DefaultLifecycle::default());
    Cache::with(USUAL_TOKENS, CACHE_BYTES, ByLength, hasher, lifecycle)
}
