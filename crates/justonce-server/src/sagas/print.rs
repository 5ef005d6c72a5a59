//! Sagas for people.

use crate::admin::wire::{RetriedSaga, SagaDetail, SagaPage, SagaRow};
use crate::keys::print::{SHOWN_DIGITS, contents, say, scope, table, timeline, visible};

/// A page as a table, and how to go on.
pub(super) fn page(page: &SagaPage) {
    if page.sagas.is_empty() && page.next.is_none() {
        return say("There are no such sagas.");
    }
    let mut table = table(&["ID", "SAGA", "STATE", "KEY", "SCOPE", "CHANGED", "STUCK AT"]);
    for row in &page.sagas {
        table.add_row([
            row.id.get(..SHOWN_DIGITS).unwrap_or(&row.id).to_owned(),
            visible(&row.saga),
            row.state.clone(),
            row.key.as_deref().map_or_else(|| "-".to_owned(), visible),
            scope(row.scope.as_ref()),
            row.changed_at.clone(),
            visible(&row.stuck.join(", ")),
        ]);
    }
    say(&table.trim_fmt());
    if let Some(next) = &page.next {
        say(&format!("There is more: --after {next}"));
    }
}

/// A saga, its steps and its timeline.
pub(super) fn detail(detail: &SagaDetail) {
    let mut lines = about(&detail.row);
    if let Some(why) = &detail.row.parked {
        lines.push(("parked because", visible(why)));
    }
    if let Some(claim) = &detail.claim {
        lines.push(("last owner", claim.owner.clone()));
        lines.push(("lease until", claim.lease_until.clone()));
    }
    if let Some(fallen) = &detail.fallen {
        let because = format!("{}: {}", visible(&fallen.step), visible(&fallen.why));
        lines.push(("rolled back because", because));
    }
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (name, value) in lines {
        say(&format!("{name:<width$}  {value}"));
    }
    if let Some(context) = &detail.context {
        say(&format!("context  {}", visible(&context.to_string())));
    }
    if let Some(outcome) = &detail.outcome {
        contents(outcome);
    }
    if !detail.steps.is_empty() {
        let mut table = table(&["STEP", "GROUP", "COMPENSATED", "MARK", "WHY"]);
        for step in &detail.steps {
            table.add_row([
                visible(&step.name),
                step.group.to_string(),
                if step.compensated { "yes" } else { "no" }.to_owned(),
                step.mark.clone(),
                step.why.as_deref().map(visible).unwrap_or_default(),
            ]);
        }
        say(&format!("\n{}", table.trim_fmt()));
    }
    say(&format!("\n{}", timeline(&detail.timeline).trim_fmt()));
    if detail.timeline_dropped > 0 {
        say(&format!("{} notes made room for newer ones.", detail.timeline_dropped));
    }
}

/// What became of a retry.
pub(super) fn retried(retried: &RetriedSaga) {
    say(&format!("{} is due again: the next completer or caller drives it on.", retried.id));
}

fn about(row: &SagaRow) -> Vec<(&'static str, String)> {
    vec![
        ("id", row.id.clone()),
        ("saga", visible(&row.saga)),
        ("state", row.state.clone()),
        ("key", row.key.as_deref().map_or_else(|| "-".to_owned(), visible)),
        ("scope", scope(row.scope.as_ref())),
        ("fence", row.fence.to_string()),
        ("attempts", row.attempt.to_string()),
        ("created at", row.created_at.clone()),
        ("changed at", row.changed_at.clone()),
    ]
}
