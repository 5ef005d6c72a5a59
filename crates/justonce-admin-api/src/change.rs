//! Requests that change a record, and their responses.

use serde::{Deserialize, Serialize};

use crate::outcome::OutcomeInput;

/// How an operator resolves an unknown operation: the last part of the request's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It took effect.
    Complete,
    /// It failed for good.
    Fail,
    /// It did not take effect and never will: the next request executes it.
    Release,
}

/// How an operator removes an outcome early: the last part of the request's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Its retention ends now.
    Expire,
    /// The record and its tombstone are removed.
    Erase,
}

impl Resolution {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Complete, Self::Fail, Self::Release];

    /// As it is written in a path.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Fail => "fail",
            Self::Release => "release",
        }
    }
}

impl Removal {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Expire, Self::Erase];

    /// As it is written in a path.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expire => "expire",
            Self::Erase => "erase",
        }
    }
}

/// `POST /keys/{id}/complete`, `fail`, `release`: an operator resolves an unknown operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolveRequest {
    /// The fence of the claim that the resolution is about.
    pub fence: u64,
    /// Who resolves it.
    pub by: String,
    /// How they know.
    pub why: String,
    /// The outcome, unless it is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeInput>,
}

/// A resolution that was applied.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResolveResponse {
    /// The record.
    pub id: String,
    /// Its state now.
    pub state: String,
    /// `completed`, `failed` or `released`.
    pub resolved: String,
    /// Who resolved it.
    pub by: String,
}

/// `POST /callbacks/{id}`: the service behind the gateway resolves an unknown operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallbackRequest {
    /// The fence that the service got with the request.
    pub fence: u64,
    /// Whether the operation took effect.
    pub result: CallbackResult,
    /// The name of the service.
    pub source: String,
    /// How it knows.
    #[serde(default)]
    pub why: Option<String>,
    /// The outcome, if it took effect.
    #[serde(default)]
    pub outcome: Option<OutcomeInput>,
}

/// Whether an operation took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackResult {
    /// It took effect.
    Happened,
    /// It did not take effect and never will.
    DidNotHappen,
}

/// `POST /keys/{id}/expire`, `erase`: an operator removes an outcome before its retention ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveRequest {
    /// The fence of the record.
    pub fence: u64,
    /// Who removes it.
    pub by: String,
    /// Why.
    pub why: String,
}

/// An outcome that was removed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveResponse {
    /// The record.
    pub id: String,
    /// `absent` or `tombstone`; another state if the key has been used again since.
    pub state: String,
    /// `expired` or `erased`.
    pub result: String,
    /// Who removed it.
    pub by: String,
}
