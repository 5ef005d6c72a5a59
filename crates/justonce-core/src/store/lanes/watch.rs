//! Looks after those who wait behind a command that takes long.

use std::sync::{Arc, Weak};

use tokio::time::sleep;

use super::{Carrier, Lanes};

impl<C: Carrier> Lanes<C> {
    /// Somebody looks after those who wait, as long as there is a command.
    ///
    /// One timer for all commands, and not one for each: a runtime whose next timer comes sooner than
    /// it had thought is woken up for that, and most commands are back long before their time.
    pub(super) fn watch(self: &Arc<Self>) {
        let mut queue = self.queue();
        if !queue.watched {
            queue.watched = true;
            let taken = queue.taken;
            drop(queue);
            tokio::spawn(Watch { lanes: Arc::downgrade(self), done: false }.watch(taken));
        }
    }

    /// Takes one more lane if all are free of haste: nobody went since so many had gone. Nothing if
    /// there is no command any more.
    fn look(&self, taken: u64) -> Option<(u64, bool)> {
        let mut queue = self.queue();
        if queue.busy == 0 {
            queue.watched = false;
            return None;
        }
        let is_stuck = queue.taken == taken && !queue.waiting.is_empty();
        let opens = is_stuck && queue.busy < self.limits.at_most;
        queue.busy += usize::from(opens);
        Some((queue.taken, opens))
    }
}

/// Looks again and again, until there is no command.
struct Watch<C: Carrier> {
    lanes: Weak<Lanes<C>>,
    done: bool,
}

impl<C: Carrier> Watch<C> {
    async fn watch(mut self, mut taken: u64) {
        while let Some(patience) = self.lanes.upgrade().map(|lanes| lanes.limits.patience) {
            sleep(patience).await;
            let Some(lanes) = self.lanes.upgrade() else { break };
            let Some((now, opened)) = lanes.look(taken) else { break };
            taken = now;
            if opened {
                lanes.serve();
            }
        }
        self.done = true;
    }
}

impl<C: Carrier> Drop for Watch<C> {
    /// Its runtime ends, but there may be another.
    fn drop(&mut self) {
        if !self.done
            && let Some(lanes) = self.lanes.upgrade()
        {
            lanes.queue().watched = false;
        }
    }
}
