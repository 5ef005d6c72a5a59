//! Chapter: what had to be on disk is there after a restart, and fences go on growing.

use std::sync::Arc;

use justonce_core::store::{ListQuery, Maintenance, Records, Stats, Stored};
use justonce_core::{OnLapsed, State, StateName};

use super::act::{Act, Call, Line, Print, Under};
use super::backend::{Backend, Survival};
use super::deviation::{Deviation, Verdict, ensure, ensure_eq};
use super::population::Population;
use super::run::Run;
use super::runner::{Stage, collect, play};
use super::stats::ensure_counts;

/// How often the store is restarted: also what an earlier run left must be read.
const RESTARTS: usize = 3;

/// After a restart each record is as it was, or as it was at some moment since the last change
/// that had to be on disk. Then the protocol goes on, with fences above all earlier ones. A store
/// that declares that nothing survives must be empty after it.
///
/// # Errors
///
/// If a record is lost, changed or back from the dead, or a fence is given again.
pub async fn restart<B: Backend>(backend: B) -> Verdict {
    let mut stage = Arc::new(Stage::new(backend)?);
    let policies = stage.setting.policy_count();
    let mut runs = Population::settle(&stage, policies).await?.runs;
    for _ in 0..RESTARTS {
        stage = restarted(stage).await?;
        if stage.backend.survival() == Survival::Nothing {
            return ensure_empty(&stage, &runs).await;
        }
        let mut stored = Vec::new();
        for run in &mut runs {
            let seen = stage.store.get(&run.oracle.id).await?;
            ensure_survived(run, seen.as_ref())?;
            stored.extend(seen.as_ref().map(|seen| seen.entry.state_name()));
            run.oracle.durable = vec![seen.clone()];
            run.oracle.stored = seen;
            run.extend(next_lines());
        }
        ensure_counts(&stage.store.stats().await?, &stored)?;
        runs = play(&stage, runs).await?;
        collect(&runs)?;
    }
    Ok(())
}

async fn restarted<B: Backend>(stage: Arc<Stage<B>>) -> Result<Arc<Stage<B>>, Deviation> {
    let Ok(Stage { backend, store, .. }) = Arc::try_unwrap(stage) else {
        return Err(Deviation::new("the suite still uses the store"));
    };
    drop(store);
    let stage = Stage::new(backend.restart().await?)?;
    stage.store.ready().await?;
    Ok(Arc::new(stage))
}

fn ensure_survived(run: &Run, seen: Option<&Stored>) -> Verdict {
    let allowed = &run.oracle.durable;
    ensure!(
        allowed.iter().any(|one| one.as_ref() == seen),
        "{} after a restart\n   kept: {seen:?}\nallowed: {allowed:?}",
        run.name
    );
    // Stated again, independent of what the function requires on disk.
    let promised = run.oracle.entry().and_then(|entry| entry.record());
    let must_be_there = promised.is_some_and(|record| match &record.state {
        State::InProgress(claim) => claim.policy.on_lapsed() != OnLapsed::Rerun,
        State::Completed(_) | State::Failed(_) | State::Unknown(_) => true,
    });
    ensure!(!must_be_there || seen.is_some(), "{} was forgotten by a restart", run.name);
    Ok(())
}

/// The protocol goes on: a begin, and the end of what it may have claimed.
fn next_lines() -> [Line; 4] {
    use super::act::{Pick, Say};
    let begin = Act::Begin(Print::Same, Call::New, Under::Own);
    [
        Line::now(Act::Peek(Print::Same)),
        Line::now(begin),
        Line::now(Act::Checkpoint(Pick::Current, Say::Second)),
        Line::now(Act::Release(Pick::Current)),
    ]
}

async fn ensure_empty<B: Backend>(stage: &Stage<B>, runs: &[Run]) -> Verdict {
    for run in runs {
        let seen = stage.store.get(&run.oracle.id).await?;
        ensure_eq!(seen, None, "{} after a restart", run.name);
    }
    let page = stage.store.list(&ListQuery::default()).await?;
    ensure!(page.records.is_empty(), "an empty store lists {page:?}");
    let stats = stage.store.stats().await?;
    ensure_eq!(stats, Stats::default(), "the figures of an empty store");
    let known = runs.iter().any(|run| run.oracle.entry().is_some());
    ensure!(known, "the population of the suite is {}", StateName::Absent);
    Ok(())
}
