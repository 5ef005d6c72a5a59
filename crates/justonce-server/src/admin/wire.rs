//! What the admin API says and is told, as JSON. The command line reads the same types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// One page of records.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeyPage {
    pub(crate) keys: Vec<KeyRow>,
    /// Where to go on; nothing at the end. A page may be empty and still have a next one.
    pub(crate) next: Option<String>,
    /// Records on the way that the store cannot read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) damaged: Vec<String>,
}

/// A record in a list.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeyRow {
    pub(crate) id: String,
    pub(crate) state: String,
    /// Nothing for tombstones, as the scope.
    pub(crate) key: Option<String>,
    pub(crate) scope: Option<BTreeMap<String, String>>,
    pub(crate) fence: u64,
    pub(crate) attempt: u32,
    pub(crate) created_at: String,
    pub(crate) changed_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<String>,
}

/// A record with everything but the contents of its outcome, which are shown to those who ask.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeyDetail {
    #[serde(flatten)]
    pub(crate) row: KeyRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<ClaimDetail>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unknown: Option<UnknownDetail>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint: Option<PointDetail>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<OutcomeDetail>,
    pub(crate) timeline: Vec<NoteRow>,
    /// How many notes had to make room for newer ones.
    pub(crate) timeline_dropped: u32,
}

/// Who holds the claim, and until when.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClaimDetail {
    pub(crate) owner: String,
    pub(crate) claimed_at: String,
    pub(crate) lease_until: String,
}

/// Since when and why nobody knows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct UnknownDetail {
    pub(crate) reason: String,
    /// What its owner saw, if it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<String>,
    pub(crate) since: String,
    pub(crate) owner: String,
}

/// The last recovery point; its data stays where it is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PointDetail {
    pub(crate) name: String,
    pub(crate) bytes: usize,
}

/// An outcome: names and sizes, and contents if they were asked for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OutcomeDetail {
    pub(crate) status: Option<u16>,
    pub(crate) header_names: Vec<String>,
    pub(crate) body_bytes: u64,
    /// Whether the body is stored; one that was too large is not.
    pub(crate) body_stored: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) headers: Option<Vec<(String, String)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<String>,
    /// Instead of the body if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) body_base64: Option<String>,
}

/// One thing that happened to a record.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct NoteRow {
    pub(crate) at: String,
    pub(crate) fence: u64,
    pub(crate) what: String,
    /// The owner, or who resolved it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    /// What kind of somebody resolved it: a probe, a callback, an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by_kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) how: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// What the owner saw that does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<String>,
}

/// What an operator says about an unknown operation.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resolving {
    pub(crate) fence: u64,
    pub(crate) by: String,
    pub(crate) why: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<GivenOutcome>,
}

/// What the downstream says about an unknown operation.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CalledBack {
    pub(crate) fence: u64,
    pub(crate) result: CallbackResult,
    pub(crate) source: String,
    #[serde(default)]
    pub(crate) why: Option<String>,
    #[serde(default)]
    pub(crate) outcome: Option<GivenOutcome>,
}

/// What became of it, by the downstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallbackResult {
    Happened,
    DidNotHappen,
}

/// An outcome as somebody gives it. At most one of the three bodies.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenOutcome {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) json: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body_base64: Option<String>,
}

/// What became of a resolution that was taken.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Resolved {
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) resolved: String,
    pub(crate) by: String,
}

/// Who gives an outcome up, and why.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivingUp {
    pub(crate) fence: u64,
    pub(crate) by: String,
    pub(crate) why: String,
}

/// What became of an outcome that was given up.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GivenUp {
    pub(crate) id: String,
    /// `absent` or `tombstone`; another if somebody has used the key anew since.
    pub(crate) state: String,
    /// `expired` or `erased`.
    pub(crate) result: String,
    pub(crate) by: String,
}

/// One page of sagas.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SagaPage {
    pub(crate) sagas: Vec<SagaRow>,
    /// Where to go on; nothing at the end. A page may be empty and still have a next one.
    pub(crate) next: Option<String>,
}

/// A saga in a list.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SagaRow {
    pub(crate) id: String,
    pub(crate) saga: String,
    pub(crate) state: String,
    pub(crate) key: Option<String>,
    pub(crate) scope: Option<BTreeMap<String, String>>,
    pub(crate) fence: u64,
    pub(crate) attempt: u32,
    pub(crate) created_at: String,
    pub(crate) changed_at: String,
    /// The steps that keep failing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) stuck: Vec<String>,
    /// Why nobody drives it on until somebody retries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parked: Option<String>,
}

/// A saga with its steps.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SagaDetail {
    #[serde(flatten)]
    pub(crate) row: SagaRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<ClaimDetail>,
    /// Empty once it has ended: only its answer is kept then.
    pub(crate) steps: Vec<StepRow>,
    /// Because of what it is rolled back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fallen: Option<FallenStep>,
    /// For those who ask for contents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<OutcomeDetail>,
    pub(crate) timeline: Vec<NoteRow>,
    pub(crate) timeline_dropped: u32,
}

/// What became of a step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StepRow {
    pub(crate) name: String,
    /// Steps of one group run beside each other.
    pub(crate) group: usize,
    /// Whether it has a compensation.
    pub(crate) compensated: bool,
    pub(crate) mark: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

/// The step because of which a saga is rolled back.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FallenStep {
    pub(crate) step: String,
    pub(crate) why: String,
}

/// Who wants a stuck saga to be tried again.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retrying {
    pub(crate) by: String,
}

/// A saga that is due again.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RetriedSaga {
    pub(crate) id: String,
    pub(crate) by: String,
}

/// A problem, as far as the command line shows it.
#[derive(Debug, Deserialize)]
pub(crate) struct ProblemBody {
    pub(crate) code: String,
    pub(crate) detail: String,
}
