//! The caller's writes and the outcome in one transaction: they are committed together or not at
//! all, so the effects are **exactly once**.
//!
//! [`PostgresStore::transactional`](crate::PostgresStore::transactional) claims the operation,
//! gives the handler an open [`Tx`], and stores the outcome with its fence in the same transaction.
//! If the process dies before the commit, nothing is committed, and the next caller runs the
//! operation again once the lease has lapsed, under every policy. If the reply of the commit is
//! lost, the record tells: it is completed if and only if the transaction was committed.
//!
//! [`PostgresStore::checkpoint_with`](crate::PostgresStore::checkpoint_with) does the same for a
//! checkpoint in the middle of an operation.
//!
//! For transactions that the caller opens, with any driver, there are
//! [`PostgresStore::complete_within`](crate::PostgresStore::complete_within),
//! [`PostgresStore::checkpoint_within`](crate::PostgresStore::checkpoint_within) and
//! [`PostgresStore::processed`](crate::PostgresStore::processed), on anything that is a
//! [`CallersTransaction`]: a transaction of tokio-postgres, of deadpool-postgres, or, with the
//! feature `sqlx`, of sqlx 0.9. For tables that several owners may write, [`fence_of`] and
//! [`if_fence_holds`] let the database refuse a stale owner.

mod checkpoint;
mod driver;
mod fence;
mod in_doubt;
#[cfg(feature = "sqlx")]
mod sqlx;
mod transaction;
mod transactional;
mod within;

pub use driver::{CallersTransaction, Param};
pub use fence::{StaleFence, fence_of, if_fence_holds};
pub use transaction::Tx;
pub use within::{Completion, Delivery};
