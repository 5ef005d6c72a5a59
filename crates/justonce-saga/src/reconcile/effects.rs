//! What is in the books of the downstream, and how it is asked for.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use justonce_core::{Key, Outcome, RecordId, Scope};

use super::compare::Finding;

/// An error of the other system's books.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Which operation something is about: by its record, and by its scope and key where they are
/// known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The name of the record.
    pub id: RecordId,
    /// Whose namespace the key lives in, if it is known.
    pub scope: Option<Scope>,
    /// The caller's name for the operation, if it is known.
    pub key: Option<Key>,
}

impl About {
    /// An operation by its scope and key.
    #[must_use]
    pub fn operation(scope: Scope, key: Key) -> Self {
        Self { id: RecordId::of(&scope, &key), scope: Some(scope), key: Some(key) }
    }

    /// An operation by the name of its record: what a service hears from the gateway as
    /// `Idempotency-Record`.
    #[must_use]
    pub const fn record(id: RecordId) -> Self {
        Self { id, scope: None, key: None }
    }
}

/// One effect, as it is in the books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookedEffect {
    /// The operation whose effect it is.
    pub about: About,
    /// The name of this effect in the books, such as the number of a payment. No two effects have
    /// the same.
    pub name: String,
    /// How old it is by the clock of the books. It is never compared with another clock.
    pub age: Duration,
}

/// Some of the effects in the books.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectPage {
    /// The effects. A page may be empty and still have a next one.
    pub effects: Vec<BookedEffect>,
    /// Where to go on, in whatever form the books like; nothing at the end.
    pub next: Option<String>,
}

/// The books: who can list effects. Two questions are asked, and both are ones that a table of
/// millions answers from an index.
///
/// An error is never taken for *no effect*. What cannot answer completely must return one.
pub trait Effects: Send + Sync {
    /// **All** effects of these operations, in any order: one query such as
    /// `WHERE record = ANY($1)`. Asked about as many as a page has.
    ///
    /// # Errors
    ///
    /// If they cannot be listed completely.
    fn of(
        &self,
        asked: &[About],
    ) -> impl Future<Output = Result<Vec<BookedEffect>, BoxError>> + Send;

    /// Some effects, in the order of the books, after the place where the page before ended: one
    /// query such as `WHERE id > $1 ORDER BY id LIMIT $2`. Effects older than
    /// [`Rules::remembered`](super::Rules::remembered) may be left out: they are not judged.
    ///
    /// # Errors
    ///
    /// If they cannot be listed.
    fn page(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> impl Future<Output = Result<EffectPage, BoxError>> + Send;

    /// The reply that callers get from now on for an unknown operation that has this effect.
    /// Default: nothing, and the operation is only reported.
    ///
    /// # Errors
    ///
    /// If it cannot be made now.
    fn outcome(
        &self,
        effect: &BookedEffect,
    ) -> impl Future<Output = Result<Option<Outcome>, BoxError>> + Send {
        let _ = effect;
        std::future::ready(Ok(None))
    }

    /// Repairs what a resolution cannot: refunds a double, books what is missing. Says what it did,
    /// or nothing if it left it. Default: nothing.
    ///
    /// It may be called more than once for the same finding, by several nodes at once, and again
    /// after a crash: it is called for as long as the finding is there. What it does must itself
    /// take effect once, for example as an operation of the engine whose key is the finding.
    ///
    /// # Errors
    ///
    /// If it failed. The next run finds the same again.
    fn repair(
        &self,
        finding: &Finding,
    ) -> impl Future<Output = Result<Option<String>, BoxError>> + Send {
        let _ = finding;
        std::future::ready(Ok(None))
    }
}
