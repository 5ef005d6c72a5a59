//! An open transaction that a handler uses.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use futures_util::FutureExt;
use justonce_core::StoreResult;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_postgres::Error;

use crate::connections::Connection;
use crate::db::Db;
use crate::error::{Reached, store_error};

/// The time limit for a rollback, which waits for the handler's last statement.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(1);

/// An open transaction. It derefs to a client of tokio-postgres. Only the store may end it.
///
/// A handler that ends without an outcome is rolled back.
pub struct Tx(Arc<Open>);

/// A connection with a transaction in it.
pub(crate) struct Open {
    client: Arc<Connection>,
    ended: bool,
}

/// The store's share of the transaction, while the handler has the other.
pub(crate) struct Ending(Arc<Open>);

impl Tx {
    /// Opens a transaction.
    pub(crate) async fn open(db: &Db) -> StoreResult<(Self, Ending)> {
        // From here on dropping it rolls back.
        let client = Arc::new(db.callers_client().await?);
        let open = Arc::new(Open { client, ended: false });
        let begun = open.client.batch_execute("BEGIN").await;
        begun.map_err(|error| store_error(error, Reached::Nothing))?;
        Ok((Self(Arc::clone(&open)), Ending(open)))
    }
}

impl Ending {
    /// The transaction, if the handler has dropped its share.
    pub(crate) fn into_sole(self) -> Option<Open> {
        Arc::into_inner(self.0)
    }
}

impl Open {
    pub(crate) fn client(&self) -> &Connection {
        &self.client
    }

    /// Commits. An error may mean that it is committed all the same.
    pub(crate) async fn commit(mut self) -> Result<(), Error> {
        self.client.batch_execute("COMMIT").await?;
        self.ended = true;
        Ok(())
    }
}

impl Drop for Open {
    /// Sends a rollback before it returns; the connection is free after it. A statement of the
    /// handler that delays the rollback is cancelled.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let client = Arc::clone(&self.client);
        let Ok(runtime) = Handle::try_current() else {
            // The first poll sends it. Its answer does not matter.
            let _ = client.batch_execute("ROLLBACK").now_or_never();
            return;
        };
        let mut rollback = Box::pin(async move {
            let done = timeout(ROLLBACK_TIMEOUT, client.batch_execute("ROLLBACK")).await;
            if !matches!(done, Ok(Ok(())))
                && let Some(client) = Arc::into_inner(client)
            {
                client.cancel();
            }
        });
        // The first poll sends it.
        if (&mut rollback).now_or_never().is_none() {
            runtime.spawn(rollback);
        }
    }
}

impl Deref for Tx {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        &self.0.client
    }
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}
