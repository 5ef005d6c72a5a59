//! What a step or a compensation knows when it is called.

use std::fmt;
use std::sync::Arc;

use justonce_core::{Fence, Key};

/// What a step or a compensation knows when it is called.
#[derive(Clone)]
pub struct Call<C> {
    pub(super) key: Key,
    pub(super) step_key: Key,
    pub(super) fence: Fence,
    pub(super) attempt: u32,
    pub(super) context: Arc<C>,
}

impl<C> Call<C> {
    /// The key to send downstream: the same however often this step of this saga is called, by
    /// whomever; another one for each saga, step and compensation.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// The key of the step itself: in a compensation, the key of what is to be undone.
    #[must_use]
    pub const fn step_key(&self) -> &Key {
        &self.step_key
    }

    /// The fence, to hand to systems that check it: they can refuse an owner that was superseded.
    #[must_use]
    pub const fn fence(&self) -> Fence {
        self.fence
    }

    /// Which try this is under this claim, from 1.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The context as the steps before have left it.
    #[must_use]
    pub fn context(&self) -> &C {
        &self.context
    }
}

impl<C> fmt::Debug for Call<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("key", &self.key).field("attempt", &self.attempt).finish()
    }
}
