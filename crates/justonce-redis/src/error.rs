//! Errors of Redis, and what they mean for a step.

use std::time::Duration;

use justonce_core::{StoreError, StoreErrorKind};
use redis::{ConnectionAddr, RedisError};

use crate::tls::{advice, advice_on_silence};

/// The time limit for making a connection, handshakes included.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A command that failed, by what can be done about it.
pub(crate) enum CommandError {
    /// The server does not have the script. Nothing was done.
    NoScript,
    /// Another node has the slot now. Nothing was done.
    Moved,
    /// Another node has this key, or is about to get it. Nothing was done.
    Ask(String),
    /// Some keys of the bucket are being moved to another node. Nothing was done.
    TryAgain(StoreError),
    /// The node is no longer a primary. Nothing was done.
    Demoted(StoreError),
    /// The connection is broken, or hangs.
    Broken(StoreError),
    /// Trying again does not help.
    Final(StoreError),
}

impl CommandError {
    /// Classifies an error of the client library.
    pub(crate) fn of(error: RedisError) -> Self {
        let Some(code) = error.code().map(str::to_owned) else {
            return Self::Broken(broken(error));
        };
        match code.as_str() {
            "NOSCRIPT" => Self::NoScript,
            "MOVED" => Self::Moved,
            "ASK" => match error.redirect_node() {
                Some((address, _)) => Self::Ask(address.to_owned()),
                None => Self::Final(refused(StoreErrorKind::Protocol, error)),
            },
            "TRYAGAIN" => Self::TryAgain(refused(StoreErrorKind::Unavailable, error)),
            "READONLY" => Self::Demoted(refused(StoreErrorKind::Unavailable, error)),
            "LOADING" | "CLUSTERDOWN" | "MASTERDOWN" | "BUSY" | "NOREPLICAS" => {
                Self::Final(refused(StoreErrorKind::Unavailable, error))
            }
            "OOM" => Self::Final(refused(StoreErrorKind::Full, error)),
            // The server cannot write its disk, or denies access: only an operator can help.
            "MISCONF" | "NOAUTH" | "WRONGPASS" | "NOPERM" => {
                Self::Final(refused(StoreErrorKind::Stopped, error))
            }
            "WRONGTYPE" => Self::Final(refused(StoreErrorKind::Damaged, error)),
            "CROSSSLOT" => Self::Final(refused(StoreErrorKind::Protocol, error)),
            _ => {
                let message = format!("Redis answered with an error: {error}");
                let kind = StoreErrorKind::Protocol;
                Self::Final(StoreError::maybe_applied(kind, message).because(error))
            }
        }
    }

    /// The error for the caller.
    pub(crate) fn into_error(self) -> StoreError {
        match self {
            Self::NoScript | Self::Moved | Self::Ask(_) => StoreError::not_applied(
                StoreErrorKind::Unavailable,
                "Redis keeps redirecting this step",
            ),
            Self::TryAgain(error)
            | Self::Demoted(error)
            | Self::Broken(error)
            | Self::Final(error) => error,
        }
    }
}

/// The server refused before it wrote anything. It checks these conditions before the first write
/// of a script, and only that write can be refused.
fn refused(kind: StoreErrorKind, error: RedisError) -> StoreError {
    StoreError::not_applied(kind, format!("Redis refused the step: {error}")).because(error)
}

/// The connection broke after the step was sent, or the reply timed out.
fn broken(error: RedisError) -> StoreError {
    let kind =
        if error.is_timeout() { StoreErrorKind::TimedOut } else { StoreErrorKind::Unavailable };
    StoreError::maybe_applied(kind, format!("no reply from Redis: {error}")).because(error)
}

/// The server cannot be reached.
pub(crate) fn unreachable(what: &str, at: &ConnectionAddr, error: RedisError) -> StoreError {
    let kind = match error.code() {
        Some("NOAUTH" | "WRONGPASS" | "NOPERM") => StoreErrorKind::Stopped,
        _ => StoreErrorKind::Unavailable,
    };
    let message = format!("cannot reach {what}: {error}{}", advice(at, &error));
    StoreError::not_applied(kind, message).because(error)
}

/// The server accepts a connection and does not answer.
pub(crate) fn silent(what: &str, at: &ConnectionAddr) -> StoreError {
    let advice = advice_on_silence(at);
    let message = format!("cannot reach {what}: no answer within {CONNECT_TIMEOUT:?}{advice}");
    StoreError::not_applied(StoreErrorKind::Unavailable, message)
}

/// A reply that the protocol does not have.
pub(crate) fn unexpected(what: &str) -> StoreError {
    let message = format!("unexpected reply from Redis to {what}");
    StoreError::maybe_applied(StoreErrorKind::Protocol, message)
}
