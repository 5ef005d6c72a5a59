//! Looks after those who wait longer than they should.

use std::mem::{replace, take};
use std::sync::{Arc, Weak};

use tokio::time::sleep;

use super::telling::Telling;
use super::{Carrier, Lanes};

impl<C: Carrier> Lanes<C> {
    /// Somebody looks after those who wait, as long as there is anybody.
    ///
    /// One timer for all commands, and not one for each: a runtime whose next timer comes sooner
    /// than it had thought is woken up for that, and most commands are back long before their time.
    pub(super) fn watch(self: &Arc<Self>) {
        let mut queue = self.queue();
        if !queue.watched {
            queue.watched = true;
            let (taken, telling) = (queue.taken, Vec::new());
            drop(queue);
            let watch = Watch { lanes: Arc::downgrade(self), taken, telling, done: false };
            tokio::spawn(watch.watch());
        }
    }
}

/// Looks again and again, until nobody waits.
struct Watch<C: Carrier> {
    lanes: Weak<Lanes<C>>,
    /// How many times somebody had gone when it looked the last time.
    taken: u64,
    /// Who was about to be told when it looked the last time.
    telling: Vec<Weak<Telling<C::Answer>>>,
    done: bool,
}

impl<C: Carrier> Watch<C> {
    async fn watch(mut self) {
        while let Some(patience) = self.lanes.upgrade().map(|lanes| lanes.limits.patience) {
            sleep(patience).await;
            let Some(lanes) = self.lanes.upgrade() else { break };
            if self.look(&lanes) {
                break;
            }
        }
        self.done = true;
    }

    /// Does what was not done since the last time. Whether nobody waits any more.
    fn look(&mut self, lanes: &Arc<Lanes<C>>) -> bool {
        let mut queue = lanes.queue();
        let is_stuck = queue.taken == self.taken && !queue.waiting.is_empty();
        let opens = is_stuck && queue.busy < lanes.limits.at_most;
        queue.busy += usize::from(opens);
        self.taken = queue.taken;
        let late = replace(&mut self.telling, take(&mut queue.telling));
        let is_over = queue.busy == 0 && self.telling.is_empty();
        queue.watched = !is_over;
        drop(queue);
        for telling in late {
            if let Some(telling) = telling.upgrade() {
                telling.tell();
            }
        }
        if opens {
            lanes.serve();
        }
        is_over
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
