//! Steps inside a transaction that the caller opens.

use std::time::Duration;

use justonce_core::codec::encode_outcome;
use justonce_core::{Answer, Fence, Lost, Outcome, RecordId, StoreResult};

use super::driver::{CallersTransaction, Param};
use crate::numbers::{fence_number, millis};
use crate::reply;
use crate::store::PostgresStore;

/// The result of a write inside the caller's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "unless it was stored, the transaction must be rolled back"]
pub enum Completion {
    /// The outcome is part of the transaction: commit it.
    Stored,
    /// The claim was lost: roll the transaction back.
    Lost(Lost),
}

impl PostgresStore {
    /// Stores the outcome of a claim inside the caller's transaction. Afterwards the caller
    /// commits, or rolls back if the claim was lost. The outer result is of the driver, the inner
    /// one of the store.
    ///
    /// ```no_run
    /// # use justonce_core::{HeldClaim, Outcome};
    /// # use justonce_postgres::{PostgresStore, tx::Completion};
    /// # async fn example(
    /// #     store: &PostgresStore, client: &mut tokio_postgres::Client, mut claim: HeldClaim,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = client.transaction().await?;
    /// transaction.execute("UPDATE accounts SET cents = cents - 5 WHERE name = 'ada'", &[]).await?;
    /// let outcome = Outcome::bytes("charged 5");
    /// let (id, fence) = (claim.id(), claim.fence());
    /// match store.complete_within(&mut transaction, &id, fence, &outcome).await?? {
    ///     Completion::Stored => transaction.commit().await?,
    ///     Completion::Lost(_) => transaction.rollback().await?,
    /// }
    /// // It is stored already; this ends the renewals of the claim.
    /// claim.complete(outcome).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the driver fails, or the database gives an unexpected answer. Roll back then.
    pub async fn complete_within<T: CallersTransaction>(
        &self,
        transaction: &mut T,
        id: &RecordId,
        fence: Fence,
        outcome: &Outcome,
    ) -> Result<StoreResult<Completion>, T::Error> {
        let db = &self.0.db;
        let outcome = encode_outcome(outcome);
        let params = [
            Param::Maybe(db.now()),
            Param::Bytes(id.as_bytes()),
            Param::Number(fence_number(fence)),
            Param::Bytes(&outcome),
        ];
        let answer = transaction.query_text(&db.sql.complete_by_rules, &params).await?;
        Ok(completion(&answer))
    }

    /// Whether a consumer sees a message for the first time. That is remembered for `retention`, as
    /// part of the caller's transaction: if that is rolled back, the message is new again. Another
    /// transaction with the same message waits until this one has ended.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    pub async fn processed<T: CallersTransaction>(
        &self,
        transaction: &mut T,
        subscriber: &str,
        message: &str,
        retention: Duration,
    ) -> Result<Delivery, T::Error> {
        let db = &self.0.db;
        let params = [
            Param::Maybe(db.now()),
            Param::Text(subscriber),
            Param::Text(message),
            Param::Number(millis(retention).max(1)),
        ];
        let first = transaction.query_text(&db.sql.remember_message, &params).await?;
        Ok(if first == "true" { Delivery::First } else { Delivery::Repeated })
    }
}

/// Whether a message was processed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a message that was seen before must not be processed again"]
pub enum Delivery {
    /// It was not: process it in the same transaction.
    First,
    /// It was.
    Repeated,
}

/// Whether to commit, from the answer of `complete_1`.
pub(super) fn completion(answer: &str) -> StoreResult<Completion> {
    Ok(match reply::written("complete", answer, None)? {
        Answer::Lost(lost) => Completion::Lost(lost),
        _ => Completion::Stored,
    })
}
