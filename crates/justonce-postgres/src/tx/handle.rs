//! An open transaction in a handler's hands.

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

/// How long a rollback may wait for what the handler had sent before.
const ROLLBACK_WITHIN: Duration = Duration::from_secs(1);

/// An open transaction. It is a client of tokio-postgres, so that all its statements can be used;
/// those that end the transaction belong to the store.
///
/// Whatever ends the handler without an outcome rolls everything back.
pub struct Tx(Arc<Open>);

/// A connection with a transaction in it.
struct Open {
    client: Arc<Connection>,
    ended: bool,
}

/// The store's own end of it, while the handler has the other.
pub(crate) struct Ending(Arc<Open>);

/// The transaction with nobody else in it.
pub(crate) struct Sole(Open);

impl Tx {
    /// Opens a transaction.
    pub(crate) async fn open(db: &Db) -> StoreResult<(Self, Ending)> {
        // From here on whoever drops it rolls back.
        let client = Arc::new(db.callers_client().await?);
        let open = Arc::new(Open { client, ended: false });
        let begun = open.client.batch_execute("BEGIN").await;
        begun.map_err(|error| store_error(error, Reached::Nothing))?;
        Ok((Self(Arc::clone(&open)), Ending(open)))
    }
}

impl Ending {
    /// The transaction, once the handler has let go of it; nothing if somebody has kept it.
    pub(crate) fn alone(self) -> Option<Sole> {
        Arc::into_inner(self.0).map(Sole)
    }
}

impl Sole {
    pub(crate) fn client(&self) -> &Connection {
        &self.0.client
    }

    /// Commits. An error may mean that it is committed all the same.
    pub(crate) async fn commit(mut self) -> Result<(), Error> {
        self.0.client.batch_execute("COMMIT").await?;
        self.0.ended = true;
        Ok(())
    }
}

impl Drop for Open {
    /// A rollback is on its way before this returns; the connection goes back to the others when
    /// it is through. A statement of the handler's that keeps it is cancelled: nobody waits for it.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let client = Arc::clone(&self.client);
        let Ok(runtime) = Handle::try_current() else {
            // It is sent with the first poll; nobody is left to need its answer.
            let _ = client.batch_execute("ROLLBACK").now_or_never();
            return;
        };
        let mut rollback = Box::pin(async move {
            let done = timeout(ROLLBACK_WITHIN, client.batch_execute("ROLLBACK")).await;
            if !matches!(done, Ok(Ok(())))
                && let Some(client) = Arc::into_inner(client)
            {
                client.cancel();
            }
        });
        // Its first poll sends it.
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
