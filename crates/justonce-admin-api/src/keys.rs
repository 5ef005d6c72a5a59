//! Records: the filter of a list, a page, and one record with its timeline.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::outcome::OutcomeDetail;

/// Which records `GET /keys` lists. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct KeyFilter {
    /// in_progress, completed, failed, released, unknown or tombstone
    #[cfg_attr(feature = "clap", arg(long))]
    pub state: Option<String>,
    /// Of this tenant
    #[cfg_attr(feature = "clap", arg(long))]
    pub tenant: Option<String>,
    /// Of this route, by its name
    #[cfg_attr(feature = "clap", arg(long))]
    pub route: Option<String>,
    /// Of this kind of operation
    #[cfg_attr(feature = "clap", arg(long))]
    pub operation: Option<String>,
    /// Whose key begins so
    #[cfg_attr(feature = "clap", arg(long))]
    pub prefix: Option<String>,
    /// Whose key has this text in it
    #[cfg_attr(feature = "clap", arg(long))]
    pub text: Option<String>,
    /// That have not changed for this long, as in 1h
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub unchanged_for: Option<String>,
    /// At most this many
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub limit: Option<usize>,
    /// Where the previous page ended
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID"))]
    pub after: Option<String>,
}

/// How much of a record or a saga is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowQuery {
    /// Whether the contents of its outcome are shown too, and the context of a saga.
    #[serde(default)]
    pub contents: bool,
}

/// One page of records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyPage {
    /// The records, in the order of their ids.
    pub keys: Vec<KeyRow>,
    /// The `after` of the next page; none at the end. An empty page may have a next one.
    pub next: Option<String>,
    /// Ids of records in this page's range that the store cannot read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
}

/// A record in a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyRow {
    /// 64 hexadecimal digits.
    pub id: String,
    /// The name of its state.
    pub state: String,
    /// None for tombstones.
    pub key: Option<String>,
    /// The parts of its scope by name; none for tombstones.
    pub scope: Option<BTreeMap<String, String>>,
    /// The fence of the last claim.
    pub fence: u64,
    /// The number of the last claim.
    pub attempt: u32,
    /// RFC 3339, as all times here.
    pub created_at: String,
    /// When the record last changed.
    pub changed_at: String,
    /// When its retention ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// A record with its timeline.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyDetail {
    /// What a list shows too.
    #[serde(flatten)]
    pub row: KeyRow,
    /// The claim, while it is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimDetail>,
    /// Why it is unknown, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<UnknownDetail>,
    /// When the back-off after a failure ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<String>,
    /// The last checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointDetail>,
    /// The stored outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeDetail>,
    /// What happened to it, oldest first.
    pub timeline: Vec<TimelineNote>,
    /// How many older notes were dropped from the timeline.
    pub timeline_dropped: u32,
}

/// Who holds the claim, and until when.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimDetail {
    /// The engine that holds it.
    pub owner: String,
    /// When it was claimed.
    pub claimed_at: String,
    /// When the lease ends unless it is renewed.
    pub lease_until: String,
}

/// Why an operation is unknown, and since when.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnknownDetail {
    /// `lapsed`, or how its owner gave it up.
    pub reason: String,
    /// What its owner observed, if it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Since when.
    pub since: String,
    /// The last owner.
    pub owner: String,
}

/// The last checkpoint; its data is not shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckpointDetail {
    /// Its name.
    pub name: String,
    /// The size of its data.
    pub bytes: usize,
}

/// One thing that happened to a record.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TimelineNote {
    /// When.
    pub at: String,
    /// The fence of the claim it belongs to.
    pub fence: u64,
    /// The name of what happened.
    pub what: String,
    /// The owner, or who resolved it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// `probe`, `callback` or `operator`, for a resolution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_kind: Option<String>,
    /// The resolution, the refused step, or the checkpoint's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
    /// The reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What the owner observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}
