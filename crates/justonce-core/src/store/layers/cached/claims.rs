//! What this process knows of the claims it took, so that it can keep their outcomes at once: a
//! complete carries neither the fingerprint nor the retention.

use std::time::Duration;

use super::port::PutPermit;
use crate::claim::Fence;
use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::record_id::RecordId;
use crate::store::{IdMap, Shards};

/// The most claims remembered in each shard of the table, about 16,000 in all. Of more, the
/// outcomes are kept when the first duplicate has asked the store.
const MAX_CLAIMS_PER_SHARD: usize = 256;

/// A claim that was taken through this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) fence: Fence,
    /// What was asked; it agrees with the record's own fingerprint.
    pub(super) fingerprint: Fingerprint,
    pub(super) retention: Duration,
    /// The right to put, and when it was given on the decorator's clock.
    pub(super) permit: PutPermit,
    pub(super) permit_at: Timestamp,
    /// Until when only the holder of the fence can end the claim.
    pub(super) alive_until: Timestamp,
}

/// The claims that were taken through this process and have not ended through it.
#[derive(Debug, Default)]
pub(super) struct Claims {
    shards: Shards<IdMap<Claim>>,
}

impl Claims {
    /// Remembers a claim. A begin that was repeated got the same claim again: the first counts.
    pub(super) fn remember(&self, id: RecordId, claim: Claim, now: Timestamp) {
        let mut shard = self.shards.of(&id);
        if shard.get(&id).is_some_and(|known| known.fence == claim.fence) {
            return;
        }
        if shard.len() >= MAX_CLAIMS_PER_SHARD {
            shard.retain(|_, known| now < known.alive_until);
        }
        if shard.len() < MAX_CLAIMS_PER_SHARD {
            shard.insert(id, claim);
        }
    }

    /// A renewal: the claim lives at least until then.
    pub(super) fn renewed(&self, id: &RecordId, fence: Fence, alive_until: Timestamp) {
        if let Some(claim) = self.shards.of(id).get_mut(id).filter(|claim| claim.fence == fence) {
            claim.alive_until = claim.alive_until.max(alive_until);
        }
    }

    /// The claim ends, and is forgotten: what a second try says was perhaps true for a while.
    pub(super) fn take(&self, id: &RecordId, fence: Fence) -> Option<Claim> {
        let mut shard = self.shards.of(id);
        shard.get(id).filter(|claim| claim.fence == fence)?;
        shard.remove(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(fence: u64, alive_until: u64) -> Claim {
        Claim {
            fence: Fence::new(fence),
            fingerprint: Fingerprint::UNCHECKED,
            retention: Duration::from_secs(60),
            permit: PutPermit { at: Timestamp::ZERO, turn: 0 },
            permit_at: Timestamp::ZERO,
            alive_until: Timestamp::from_millis(alive_until),
        }
    }

    /// Names that all lie in one shard.
    fn id(number: usize) -> RecordId {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        RecordId::from_bytes(bytes)
    }

    #[test]
    fn claims_are_bounded_and_the_dead_make_room() {
        let claims = Claims::default();
        for number in 0..MAX_CLAIMS_PER_SHARD {
            claims.remember(id(number), claim(1, 10), Timestamp::ZERO);
        }
        claims.remember(id(9_999), claim(1, 20), Timestamp::from_millis(9));
        assert!(claims.take(&id(9_999), Fence::new(1)).is_none(), "all are alive");
        claims.remember(id(9_999), claim(1, 20), Timestamp::from_millis(10));
        assert!(claims.take(&id(9_999), Fence::new(1)).is_some());
        assert!(claims.take(&id(0), Fence::new(1)).is_none(), "the dead made room");
    }

    #[test]
    fn the_first_of_two_begins_with_one_fence_counts() {
        let claims = Claims::default();
        claims.remember(id(1), claim(1, 10), Timestamp::ZERO);
        let second = Claim { retention: Duration::from_secs(1), ..claim(1, 30) };
        claims.remember(id(1), second, Timestamp::ZERO);
        claims.renewed(&id(1), Fence::new(2), Timestamp::from_millis(90));
        claims.renewed(&id(1), Fence::new(1), Timestamp::from_millis(40));
        assert!(claims.take(&id(1), Fence::new(2)).is_none());
        let first = claims.take(&id(1), Fence::new(1)).unwrap();
        assert_eq!(first.retention, Duration::from_secs(60));
        assert_eq!(first.alive_until, Timestamp::from_millis(40));
        assert!(claims.take(&id(1), Fence::new(1)).is_none(), "only once");
    }
}
