//! Room for the bodies of requests: what is read whole is bounded for all requests together.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// How many bytes of bodies are held at the same time, beside the first of each. Callers that
/// never finish what they send could fill the memory otherwise, however small the limit of one.
const MAX_HELD_BYTES: usize = 64 * 1024 * 1024;
/// So many bytes of each body need no room: most requests are small, and large ones do not hinder
/// them.
const FREE_BYTES: usize = 16 * 1024;
/// How long a body waits for room in all before its request is refused.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The room of one layer.
#[derive(Clone, Debug)]
pub(crate) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_HELD_BYTES)))
    }
}

impl Room {
    /// The place of one body, which is empty yet.
    pub(crate) fn place(&self) -> Place {
        Place { room: Arc::clone(&self.0), taken: None, bytes: 0, deadline: None }
    }
}

/// The room that one body takes, until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    room: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
    bytes: usize,
    /// When it has waited enough, from the first time it had to.
    deadline: Option<Instant>,
}

impl Place {
    /// Takes room for more bytes; false if there was none for too long.
    pub(crate) async fn grow(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        // One body alone never needs more than there is.
        let needed = self.bytes.saturating_sub(FREE_BYTES).min(MAX_HELD_BYTES);
        let missing = needed - self.taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let Some(missing) = u32::try_from(missing).ok().filter(|missing| *missing > 0) else {
            return true;
        };
        let more = match Arc::clone(&self.room).try_acquire_many_owned(missing) {
            Ok(more) => Some(more),
            // Rare, and large: kept out of the future of every body.
            Err(_) => Box::pin(self.awaited(missing)).await,
        };
        match (&mut self.taken, more) {
            (_, None) => return false,
            (Some(taken), Some(more)) => taken.merge(more),
            (None, more) => self.taken = more,
        }
        true
    }

    async fn awaited(&mut self, missing: u32) -> Option<OwnedSemaphorePermit> {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + MAX_WAIT);
        let more = Arc::clone(&self.room).acquire_many_owned(missing);
        timeout_at(deadline, more).await.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn small_bodies_need_no_room() {
        let room = Room::default();
        let mut large = room.place();
        assert!(large.grow(2 * MAX_HELD_BYTES).await, "one alone is never too large");
        assert!(large.grow(1).await);
        let mut small = room.place();
        assert!(small.grow(FREE_BYTES).await);
        assert!(!small.grow(1).await, "there is no room beyond that");
        drop(large);
        assert!(room.place().grow(FREE_BYTES + 1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_taken_as_bodies_grow_and_comes_back() {
        let room = Room::default();
        let mut places: Vec<Place> = (0..4).map(|_| room.place()).collect();
        for place in &mut places {
            assert!(place.grow(FREE_BYTES).await && place.grow(MAX_HELD_BYTES / 4).await);
        }
        assert_eq!(room.0.available_permits(), 0);
        let waiting = async {
            let mut late = room.place();
            late.grow(FREE_BYTES + 1).await
        };
        let (found, ()) = tokio::join!(waiting, async { drop(places) });
        assert!(found, "it waited");
        assert_eq!(room.0.available_permits(), MAX_HELD_BYTES);
    }
}
