//! Sagas as the admin API shows them.

use justonce::saga::{Log, LoggedStep, Mark, SeenSaga};
use justonce::store::Summary;
use justonce_admin_api::{FailedStep, KeyDetail, KeyRow, SagaDetail, SagaRow, StepRow};
use serde_json::Value;

use crate::admin::keys::row as key_row;

/// A saga in a list.
pub(super) fn row(summary: &Summary, seen: &SeenSaga) -> SagaRow {
    of_record(key_row(summary), seen)
}

fn of_record(record: KeyRow, seen: &SeenSaga) -> SagaRow {
    let stuck = seen.log.iter().flat_map(Log::steps).filter(|step| is_stuck(step));
    SagaRow {
        record: KeyRow { state: seen.state.as_str().to_owned(), expires_at: None, ..record },
        saga: seen.saga.clone(),
        stuck: stuck.map(|step| step.planned.name.clone()).collect(),
        parked: seen.log.as_ref().and_then(Log::parked).map(str::to_owned),
    }
}

/// A saga with its steps, and its context if contents were requested.
pub(super) fn detail(seen: &SeenSaga, record: KeyDetail, contents: bool) -> SagaDetail {
    let KeyDetail { row, claim, outcome, timeline, timeline_dropped, .. } = record;
    let log = seen.log.as_ref();
    SagaDetail {
        row: of_record(row, seen),
        claim,
        steps: log.map(|log| log.steps().iter().map(step).collect()).unwrap_or_default(),
        fallen: log.and_then(Log::fallen).map(|step| FailedStep {
            step: step.planned.name.clone(),
            why: step.why.clone().unwrap_or_default(),
        }),
        context: log.filter(|_| contents).and_then(|log| log.context::<Value>().ok()),
        outcome,
        timeline,
        timeline_dropped,
    }
}

fn step(step: &LoggedStep) -> StepRow {
    StepRow {
        name: step.planned.name.clone(),
        group: step.planned.group,
        compensated: step.planned.undo,
        mark: mark(step.mark).to_owned(),
        why: step.why.clone(),
    }
}

const fn is_stuck(step: &LoggedStep) -> bool {
    matches!(step.mark, Mark::StuckAhead | Mark::StuckBack | Mark::Unsaved)
}

const fn mark(mark: Mark) -> &'static str {
    match mark {
        Mark::Waiting => "waiting",
        Mark::Done => "done",
        Mark::Refused => "refused",
        Mark::Doubted => "doubted",
        Mark::Undone => "undone",
        Mark::StuckAhead => "stuck_ahead",
        Mark::StuckBack => "stuck_back",
        Mark::Unsaved => "unsaved",
    }
}
