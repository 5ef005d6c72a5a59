//! The one object-safe boundary.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{Health, ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport};
use crate::claim::Fence;
use crate::error::StoreResult;
use crate::protocol::{Answer, ClaimEnd, Step};
use crate::record_id::RecordId;

/// A boxed future of a store call.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = StoreResult<T>> + Send + 'a>>;

/// Any store, behind a pointer. Implemented for everything that is [`Records`] and
/// [`Maintenance`]; implement those instead.
pub trait DynStore: Send + Sync + 'static {
    /// See [`Records::apply`].
    fn apply<'a>(&'a self, step: &'a Step) -> BoxFuture<'a, Answer>;
    /// See [`Records::get`].
    fn get<'a>(&'a self, id: &'a RecordId) -> BoxFuture<'a, Option<Stored>>;
    /// See [`Records::settled`].
    fn settled<'a>(&'a self, id: &'a RecordId, fence: Fence) -> BoxFuture<'a, Option<ClaimEnd>>;
    /// See [`Maintenance::list`].
    fn list<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Page>;
    /// See [`Maintenance::stats`].
    fn stats(&self) -> BoxFuture<'_, Stats>;
    /// See [`Maintenance::sweep`].
    fn sweep(&self, limit: usize) -> BoxFuture<'_, SweepReport>;
    /// See [`Maintenance::ready`].
    fn ready(&self) -> BoxFuture<'_, ()>;
    /// See [`Maintenance::health`].
    fn health(&self) -> BoxFuture<'_, Health>;
}

/// A store that many share.
pub type SharedStore = Arc<dyn DynStore>;

impl<S: Records + Maintenance> DynStore for S {
    fn apply<'a>(&'a self, step: &'a Step) -> BoxFuture<'a, Answer> {
        Box::pin(Records::apply(self, step))
    }

    fn get<'a>(&'a self, id: &'a RecordId) -> BoxFuture<'a, Option<Stored>> {
        Box::pin(Records::get(self, id))
    }

    fn settled<'a>(&'a self, id: &'a RecordId, fence: Fence) -> BoxFuture<'a, Option<ClaimEnd>> {
        Box::pin(Records::settled(self, id, fence))
    }

    fn list<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Page> {
        Box::pin(Maintenance::list(self, query))
    }

    fn stats(&self) -> BoxFuture<'_, Stats> {
        Box::pin(Maintenance::stats(self))
    }

    fn sweep(&self, limit: usize) -> BoxFuture<'_, SweepReport> {
        Box::pin(Maintenance::sweep(self, limit))
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(Maintenance::ready(self))
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(Maintenance::health(self))
    }
}
