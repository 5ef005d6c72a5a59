//! What an error of PostgreSQL means: what went wrong, and whether the step took place.
//!
//! A statement of ours is a transaction of its own. Its row is sent before it is committed, its
//! end is reported after. So an error that comes before the row means that nothing was committed,
//! and a connection that breaks at any later moment means that nobody knows.

use deadpool_postgres::PoolError;
use justonce_core::{StoreError, StoreErrorKind};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// What to do about a server that wants TLS.
const SPEAK_TLS: &str = "If it wants TLS, add sslmode=verify-full to the address";

/// How far a statement had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// It was not sent.
    Nothing,
    /// It was sent, and nothing was heard of it.
    Sent,
    /// Its row was heard of, its end was not.
    Row,
}

/// An error as the protocol wants it.
pub(crate) fn store_error(error: Error, reached: Reached) -> StoreError {
    let kind = kind_of(&error);
    let message = message_of(&error);
    if is_certain(&error, reached) {
        StoreError::not_applied(kind, message).because(error)
    } else {
        StoreError::maybe_applied(kind, message).because(error)
    }
}

/// Whether a statement that failed this way has certainly not been committed.
fn is_certain(error: &Error, reached: Reached) -> bool {
    match (reached, error.as_db_error()) {
        (Reached::Nothing, _) => true,
        // The server itself says that the statement failed: it is rolled back. Only a connection
        // that the server ends may have been committed just before.
        (Reached::Sent, Some(_)) => true,
        (Reached::Row, Some(db)) => !ends_connection(db),
        (Reached::Sent | Reached::Row, None) => false,
    }
}

fn ends_connection(error: &DbError) -> bool {
    !matches!(error.parsed_severity(), Some(Severity::Error))
}

/// Whether the same statement may be sent again at once: it lost against another one.
pub(crate) fn lost_a_conflict(error: &Error) -> bool {
    let conflicts = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
    error.code().is_some_and(|code| conflicts.contains(code))
}

/// Whether the connection must not be used again: it ends, or its server is no longer the one
/// that takes writes.
pub(crate) fn spoils_connection(error: &Error) -> bool {
    match error.as_db_error() {
        Some(db) => ends_connection(db) || *db.code() == SqlState::READ_ONLY_SQL_TRANSACTION,
        None => true,
    }
}

/// Whether the server takes no writes: then nothing was applied, and what only reads goes on.
pub(crate) fn is_read_only(error: &StoreError) -> bool {
    let error = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Error>());
    error.and_then(Error::code) == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
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
            // Connections, authorization, resources, conflicts, the operator's doing.
            Some("08" | "28" | "40" | "53" | "57") => StoreErrorKind::Unavailable,
            Some("58") => StoreErrorKind::Stopped,
            _ => StoreErrorKind::Protocol,
        }
    }
}

fn message_of(error: &Error) -> String {
    let message = advised(error);
    match error.code().and_then(|code| code.code().get(..2)) {
        Some("3F" | "42") => {
            format!("{message}. Is the schema there? `justonce migrate` makes it")
        }
        _ => message,
    }
}

/// What went wrong, and what to do about it where that is about TLS.
pub(crate) fn advised(error: &Error) -> String {
    let (message, advice) = match error.as_db_error() {
        Some(db) => {
            let message = format!("PostgreSQL says {}: {}", db.code().code(), db.message());
            (message, wants_tls(db).then_some(SPEAK_TLS))
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

/// Whether the server turned a connection away as it was without TLS. It has no code of its own
/// for that, and some speak the operator's language.
fn wants_tls(error: &DbError) -> bool {
    let turned_away = *error.code() == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
        && error.routine() == Some("ClientAuthentication");
    let message = error.message();
    turned_away && !message.contains("SSL") || message.contains("SSL required")
}

/// No connection could be had, so nothing was sent.
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

/// What a stored row holds is not what we write.
pub(crate) fn damaged(what: impl std::fmt::Display) -> StoreError {
    StoreError::not_applied(StoreErrorKind::Damaged, format!("a record is damaged: {what}"))
}
