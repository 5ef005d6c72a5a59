//! Errors of PostgreSQL, and whether the step was applied.
//!
//! Each statement is a transaction. Its row is sent before the commit, its end is reported after.
//! It was certainly not committed if nothing was sent, or if the server itself reports that the
//! statement failed. Anything else may have happened right after the commit: a broken connection, a
//! server that ends, a pooler that reports a lost server.

use deadpool_postgres::PoolError;
use justonce_core::{Effect, StoreError, StoreErrorKind};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// What to do about a server that requires TLS.
const TLS_HINT: &str = "If the server requires TLS, add sslmode=verify-full to the address";

/// What to do about a pooler that gives each transaction another connection to the server.
pub(crate) const POOLED: &str = "A pooler gives transactions of one connection to different \
    connections of the server, but this store needs one of its own: waiting for the end of an \
    operation, its settings and its prepared statements belong to a session. For PgBouncer set \
    pool_mode = session for this database or user, or name the server itself in the address";

/// How far a statement had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// It was not sent.
    Nothing,
    /// It was sent, and nothing was received.
    Sent,
    /// Its row was received, its end was not.
    Row,
}

/// An error of the protocol.
pub(crate) fn store_error(error: Error, reached: Reached) -> StoreError {
    let kind = kind_of(&error);
    let message = message_of(&error);
    if reached == Reached::Nothing || is_rolled_back(&error) {
        StoreError::not_applied(kind, message).because(error)
    } else {
        StoreError::maybe_applied(kind, message).because(error)
    }
}

/// Whether the server itself reports that a statement failed, and with it its transaction. It names
/// the routine in its source; poolers do not. An error that ends a connection tells nothing about
/// earlier statements, and poolers use the codes of lost connections and failed systems for it.
pub(crate) fn is_rolled_back(error: &Error) -> bool {
    error.as_db_error().is_some_and(|db| {
        let is_lost = matches!(db.code().code().get(..2), Some("08" | "58"))
            || db.code().code().starts_with("57P");
        !ends_connection(db) && db.routine().is_some() && !is_lost
    })
}

/// Another transaction has locked the record of a step.
#[derive(Clone, Copy, Debug)]
struct Locked;

impl std::fmt::Display for Locked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("another transaction has locked the record: try again")
    }
}

impl std::error::Error for Locked {}

/// The record stayed locked for the time limit.
pub(crate) fn locked() -> StoreError {
    StoreError::not_applied(StoreErrorKind::TimedOut, Locked.to_string()).because(Locked)
}

/// Whether a record stayed locked for the time limit. Nothing was applied then.
pub(crate) fn is_locked(error: &StoreError) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.is::<Locked>())
        || (error.effect() == Effect::NotApplied
            && code_of(error) == Some(&SqlState::LOCK_NOT_AVAILABLE))
}

/// Whether the server takes no more connections.
pub(crate) fn is_full(error: &StoreError) -> bool {
    code_of(error) == Some(&SqlState::TOO_MANY_CONNECTIONS)
}

fn ends_connection(error: &DbError) -> bool {
    !matches!(error.parsed_severity(), Some(Severity::Error))
}

/// Whether the statement lost a conflict, and may be sent again at once.
pub(crate) fn lost_a_conflict(error: &Error) -> bool {
    let conflicts = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
    error.code().is_some_and(|code| conflicts.contains(code))
}

/// Whether the connection must not be used again: it ends, or its server takes no writes any more.
pub(crate) fn spoils_connection(error: &Error) -> bool {
    match error.as_db_error() {
        Some(db) => ends_connection(db) || *db.code() == SqlState::READ_ONLY_SQL_TRANSACTION,
        None => true,
    }
}

/// Whether the server is read-only. Nothing was applied then, and reads still work.
pub(crate) fn is_read_only(error: &StoreError) -> bool {
    code_of(error) == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// The code of PostgreSQL for an error.
fn code_of(error: &StoreError) -> Option<&SqlState> {
    let error = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Error>());
    error.and_then(Error::code)
}

fn kind_of(error: &Error) -> StoreErrorKind {
    let Some(code) = error.code() else {
        return StoreErrorKind::Unavailable;
    };
    let full = [SqlState::DISK_FULL, SqlState::PROGRAM_LIMIT_EXCEEDED];
    let slow = [SqlState::QUERY_CANCELED, SqlState::LOCK_NOT_AVAILABLE];
    let damaged = [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED];
    if full.contains(code) {
        StoreErrorKind::Full
    } else if slow.contains(code) {
        StoreErrorKind::TimedOut
    } else if damaged.contains(code) {
        StoreErrorKind::Damaged
    } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        StoreErrorKind::Unavailable
    } else {
        match code.code().get(..2) {
            // Connections, authorization, resources, conflicts, operator intervention.
            Some("08" | "28" | "40" | "53" | "57") => StoreErrorKind::Unavailable,
            Some("58") => StoreErrorKind::Stopped,
            _ => StoreErrorKind::Protocol,
        }
    }
}

fn message_of(error: &Error) -> String {
    let message = advised(error);
    match error.code().and_then(|code| code.code().get(..2)) {
        // Each connection uses only statements that it has prepared itself.
        Some("26") => format!("{message}. {POOLED}"),
        _ if error.code() == Some(&SqlState::DUPLICATE_PSTATEMENT) => {
            format!("{message}. {POOLED}")
        }
        Some("3F" | "42") => {
            format!("{message}. Is the schema there? `justonce migrate` makes it")
        }
        _ => message,
    }
}

/// The message of an error, with advice if TLS is the reason.
pub(crate) fn advised(error: &Error) -> String {
    let (message, advice) = match error.as_db_error() {
        Some(db) => {
            let message = format!("PostgreSQL says {}: {}", db.code().code(), db.message());
            (message, wants_tls(db).then_some(TLS_HINT))
        }
        None => {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
            let message =
                format!("PostgreSQL cannot be reached: {error}{}", cause.unwrap_or_default());
            (message, crate::tls::advice(error))
        }
    };
    advice.map_or_else(|| message.clone(), |advice| format!("{message}. {advice}"))
}

/// Whether the server refused a connection without TLS. There is no special code for that, and
/// messages may be translated.
fn wants_tls(error: &DbError) -> bool {
    let turned_away = *error.code() == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
        && error.routine() == Some("ClientAuthentication");
    let message = error.message();
    turned_away && !message.contains("SSL") || message.contains("SSL required")
}

/// There was no connection, so nothing was sent.
pub(crate) fn no_connection(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => store_error(error, Reached::Nothing),
        PoolError::Timeout(_) => {
            let message = "all connections to PostgreSQL are in use, or none can be made";
            StoreError::not_applied(StoreErrorKind::Unavailable, message).because(error)
        }
        other => {
            let message = format!("no connection to PostgreSQL: {other}");
            StoreError::not_applied(StoreErrorKind::Unavailable, message).because(other)
        }
    }
}

/// A row has content that this store does not write.
pub(crate) fn damaged(what: impl std::fmt::Display) -> StoreError {
    StoreError::not_applied(StoreErrorKind::Damaged, format!("a record is damaged: {what}"))
}
