//! Chapter: cases without waiting match the pure function also where steps go in batches.

use std::sync::Arc;

use justonce_core::{Action, Answer, Fence, Lost, MAX_NOTES, NoteKind, OnLapsed, Operation, Step};

use super::backend::Backend;
use super::cases;
use super::crowd::{Counted, Crowd, done};
use super::deviation::{Verdict, ensure_eq};
use super::runner::{Stage, collect, play};

/// Drives every case in which no time passes through the store, all at once, and compares as
/// [`every_case`](super::every_case) does. Then operations whose timelines are full are completed
/// at once. For stores on a clock that runs by itself.
///
/// # Errors
///
/// With the first cases in which the store deviates, if a timeline does not say what made room, and
/// if a store with batches sends none.
pub async fn at_once<B: Backend>(backend: B) -> Verdict {
    let stage = Arc::new(Stage::new(backend)?);
    let counted = Counted::new(&stage);
    let start = stage.backend.now().await?;
    let runs = cases::immediate(&stage.setting, start)?;
    let runs = play(&stage, runs).await?;
    let coverage = collect(&runs)?;
    counted.ensure_batched("the steps of all cases")?;
    println!("{} cases, {} steps compared", runs.len(), coverage.steps);
    full_timelines(&stage).await
}

/// Timelines have no room for the note about the completion.
async fn full_timelines<B: Backend>(stage: &Stage<B>) -> Verdict {
    let crowd = Crowd::new(stage, "full", &stage.setting.on_lapsed(OnLapsed::Hold)?)?;
    let fences: Vec<Fence> = crowd.claim().await?.iter().map(|claimed| claimed.fence).collect();
    for _ in 1..MAX_NOTES {
        let renew = |operation: &Operation| Step::new(operation.id(), Action::Renew(Fence::NONE));
        for answer in stage.all(crowd.operations.iter().map(renew)).await? {
            ensure_eq!(answer, Answer::Lost(Lost::Superseded), "a renewal under no fence");
        }
    }
    for answer in crowd.complete(&fences, done).await? {
        ensure_eq!(answer, Answer::Applied, "the completion of an owner");
    }
    for operation in &crowd.operations {
        let timeline = stage.kept(operation).await?.timeline;
        let seen = (timeline.notes().len(), timeline.dropped());
        ensure_eq!(seen, (MAX_NOTES, 1), "notes, and notes that made room");
        let last = timeline.notes().last().map(|note| &note.kind);
        ensure_eq!(last, Some(&NoteKind::Completed), "the last note");
    }
    Ok(())
}
