//! What the integration tests share: a world with one store, handlers, and stores that misbehave.

pub(crate) mod erasable;
pub(crate) mod erring;
pub(crate) mod handlers;
pub(crate) mod hooked;
pub(crate) mod script;
pub(crate) mod shared;
pub(crate) mod slow;
pub(crate) mod world;
