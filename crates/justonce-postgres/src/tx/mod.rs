//! The caller's writes and the outcome in one transaction: they are committed together or not at
//! all, so the effects are **exactly once**.
//!
//! [`PostgresStore::transactional`](crate::PostgresStore::transactional) does all of it: it claims
//! the operation, hands the handler an open [`Tx`], and stores the outcome with its fence in the
//! same transaction. If the process dies at any point before, nothing is committed, and the next
//! caller runs it again once the lease has lapsed, whatever the policy says. If the reply of the
//! commit is lost, the record itself is asked: it is completed if and only if the transaction was.
//!
//! [`PostgresStore::checkpoint_with`](crate::PostgresStore::checkpoint_with) does the same for a
//! recovery point in the middle of an operation.
//!
//! For callers with a transaction and a driver of their own there are the single parts:
//! [`PostgresStore::complete_within`](crate::PostgresStore::complete_within),
//! [`PostgresStore::checkpoint_within`](crate::PostgresStore::checkpoint_within) and
//! [`PostgresStore::processed`](crate::PostgresStore::processed), on anything that is a
//! [`CallersTransaction`]: a transaction of tokio-postgres, of deadpool-postgres, or, with the
//! feature `sqlx`, of sqlx 0.9. And where effects lie in a table that many owners may write,
//! [`fence_of`] and [`if_fence_holds`] let the database refuse a stale one.

mod callers;
mod committed;
mod doubt;
mod guard;
mod handle;
mod point;
mod run;
#[cfg(feature = "sqlx")]
mod sqlx;
mod within;

pub use callers::{CallersTransaction, Param};
pub(crate) use committed::Committed;
pub use guard::{StaleFence, fence_of, if_fence_holds};
pub use handle::Tx;
pub use within::{Completion, Seen};
