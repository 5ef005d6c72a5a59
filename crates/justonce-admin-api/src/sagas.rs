//! Sagas: the filter of a list, a page, one saga with its steps, and a retry.

use serde::{Deserialize, Serialize};

use crate::keys::{ClaimDetail, KeyRow, TimelineNote};
use crate::outcome::OutcomeDetail;

/// Which sagas `GET /sagas` lists. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct SagaFilter {
    /// running, stuck, parked, done or rolled_back
    #[cfg_attr(feature = "clap", arg(long))]
    pub state: Option<String>,
    /// Of this name
    #[cfg_attr(feature = "clap", arg(long))]
    pub saga: Option<String>,
    /// Of this tenant
    #[cfg_attr(feature = "clap", arg(long))]
    pub tenant: Option<String>,
    /// At most this many
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub limit: Option<usize>,
    /// Where the previous page ended
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID"))]
    pub after: Option<String>,
}

/// One page of sagas.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SagaPage {
    /// The sagas, in the order of their records' ids.
    pub sagas: Vec<SagaRow>,
    /// The `after` of the next page; none at the end. An empty page may have a next one.
    pub next: Option<String>,
}

/// A saga in a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SagaRow {
    /// Its record. The state is that of the saga: `running`, `stuck`, `parked`, `done` or
    /// `rolled_back`.
    #[serde(flatten)]
    pub record: KeyRow,
    /// The name of the saga.
    pub saga: String,
    /// The steps that keep failing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<String>,
    /// Why it is not driven on until it is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<String>,
}

/// A saga with its steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SagaDetail {
    /// What a list shows too.
    #[serde(flatten)]
    pub row: SagaRow,
    /// The claim, while it is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimDetail>,
    /// Empty once it has ended: only its outcome is kept.
    pub steps: Vec<StepRow>,
    /// The step because of which it is rolled back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallen: Option<FailedStep>,
    /// Its context, if contents were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<serde_json::Value>,
    /// The stored outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeDetail>,
    /// What happened to its record, oldest first.
    pub timeline: Vec<TimelineNote>,
    /// How many older notes were dropped from the timeline.
    pub timeline_dropped: u32,
}

/// The state of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepRow {
    /// Its name.
    pub name: String,
    /// Steps of one group run concurrently.
    pub group: usize,
    /// Whether it has a compensation.
    pub compensated: bool,
    /// The name of its state.
    pub mark: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The step because of which a saga is rolled back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FailedStep {
    /// Its name.
    pub step: String,
    /// Why it failed.
    pub why: String,
}

/// `POST /sagas/{id}/retry`: a stuck or parked saga is due again.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryRequest {
    /// Who retries it.
    pub by: String,
}

/// A saga that is due again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RetryResponse {
    /// The id of its record.
    pub id: String,
    /// Who retries it.
    pub by: String,
}
