//! What Redis says when it refuses, and what that means for a step.

use justonce_core::{StoreError, StoreErrorKind};
use redis::{ConnectionAddr, RedisError};

use crate::tls::advice;

/// What to do about an error.
pub(crate) enum Trouble {
    /// The server does not have the script; nothing was done.
    NoScript,
    /// Another node has the slot now; nothing was done.
    Moved,
    /// Another node has, or gets, this very key; nothing was done.
    Ask(String),
    /// Some keys of the bucket are on their way to another node; nothing was done.
    TryAgain(StoreError),
    /// The node is not a primary any more; nothing was done.
    Demoted(StoreError),
    /// The connection is broken, or hangs.
    Broken(StoreError),
    /// It is as it is.
    Final(StoreError),
}

impl Trouble {
    /// What an error means.
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
            // The server cannot write its disk, or does not let us in: only an operator can help.
            "MISCONF" | "NOAUTH" | "WRONGPASS" | "NOPERM" => {
                Self::Final(refused(StoreErrorKind::Stopped, error))
            }
            "WRONGTYPE" => Self::Final(refused(StoreErrorKind::Damaged, error)),
            "CROSSSLOT" => Self::Final(refused(StoreErrorKind::Protocol, error)),
            _ => {
                let message = format!("Redis answered with an error: {error}");
                let error =
                    StoreError::maybe_applied(StoreErrorKind::Protocol, message).because(error);
                Self::Final(error)
            }
        }
    }

    /// The error for the caller.
    pub(crate) fn into_error(self) -> StoreError {
        match self {
            Self::NoScript | Self::Moved | Self::Ask(_) => StoreError::not_applied(
                StoreErrorKind::Unavailable,
                "Redis sends this step from node to node",
            ),
            Self::TryAgain(error)
            | Self::Demoted(error)
            | Self::Broken(error)
            | Self::Final(error) => error,
        }
    }
}

/// The server refused before it wrote anything: it checks each of these before a script's first
/// write, and a script's first write is the only one that can be refused.
fn refused(kind: StoreErrorKind, error: RedisError) -> StoreError {
    StoreError::not_applied(kind, format!("Redis refused the step: {error}")).because(error)
}

/// The connection broke, or no reply came in time, after the step was sent.
fn broken(error: RedisError) -> StoreError {
    let kind =
        if error.is_timeout() { StoreErrorKind::TimedOut } else { StoreErrorKind::Unavailable };
    StoreError::maybe_applied(kind, format!("no reply from Redis: {error}")).because(error)
}

/// The server could not be reached in the first place.
pub(crate) fn unreachable(what: &str, at: &ConnectionAddr, error: RedisError) -> StoreError {
    let kind = match error.code() {
        Some("NOAUTH" | "WRONGPASS" | "NOPERM") => StoreErrorKind::Stopped,
        _ => StoreErrorKind::Unavailable,
    };
    let message = format!("cannot reach {what}: {error}{}", advice(at, &error));
    StoreError::not_applied(kind, message).because(error)
}

/// A reply that belongs to no step of the protocol.
pub(crate) fn strange(what: &str) -> StoreError {
    let message = format!("Redis gave a reply that does not belong to {what}");
    StoreError::maybe_applied(StoreErrorKind::Protocol, message)
}
