//! Chapter: a sweep does what time demands, in portions, and nothing else.

use std::sync::Arc;

use justonce_core::store::{Maintenance, Records, SweepReport};
use justonce_core::{Action, Answer, SweepDone};

use super::backend::Backend;
use super::deviation::{Deviation, Verdict, ensure, ensure_eq};
use super::population::Population;
use super::runner::Stage;
use super::tolerance::same_stored;

/// Sweeps with one record at a time, with a few and with all at once end retentions, remove old
/// tombstones and hold lapsed claims, as the rules demand for each record. What is running, unknown
/// or not yet over stays as it is.
///
/// # Errors
///
/// If a record is swept that must stay or the other way round, or a report is wrong.
pub async fn sweep<B: Backend>(backend: B) -> Verdict {
    let stage = Arc::new(Stage::new(backend)?);
    for (limit, policies) in [(usize::MAX, 6), (7, 6), (1, 1)] {
        let mut population = Population::settle(&stage, policies).await?;
        let nothing = stage.store.sweep(0).await?;
        let idle = SweepReport { more: nothing.more, ..SweepReport::default() };
        ensure_eq!(nothing, idle, "a sweep of no records");
        ensure_kept(&stage, &population).await?;
        sweep_all(&stage, &mut population, limit).await?;
        // Long after, only what never ends is left; the rest goes.
        stage.advance(stage.setting.much_later).await?;
        population.now = stage.backend.now().await?;
        sweep_all(&stage, &mut population, limit).await?;
        let left = population.runs.iter().filter_map(|run| run.oracle.entry());
        let ends = left.filter(|entry| entry.expires_at().is_some()).count();
        ensure_eq!(ends, 0, "records left whose time is over");
        clear(&stage, &population).await?;
    }
    Ok(())
}

/// Sweeps in portions until nothing is left to do, and compares.
pub(super) async fn sweep_all<B: Backend>(
    stage: &Stage<B>,
    population: &mut Population,
    limit: usize,
) -> Verdict {
    let mut expected = SweepReport::default();
    for run in &mut population.runs {
        let oracle = &mut run.oracle;
        let decision = oracle.decide(&Action::Sweep, population.now, oracle.fresh());
        if let Answer::Swept(done) = oracle.carry_out(decision) {
            expected.count(run.oracle.id, done);
        }
    }
    expected.held.sort();
    let due = expected.changed();
    ensure!(due > 0, "the population of the suite gives a sweep nothing to do");
    let mut swept = SweepReport::default();
    // Each portion but the last does something.
    for _ in 0..=due {
        let report = stage.store.sweep(limit).await?;
        ensure!(report.changed() <= limit as u64, "{report:?} with a limit of {limit}");
        swept.removed += report.removed;
        swept.buried += report.buried;
        swept.held.extend(report.held);
        if !report.more {
            break;
        }
    }
    swept.held.sort();
    ensure_eq!(swept, expected, "all sweeps together");
    ensure_kept(stage, population).await?;
    let again = stage.store.sweep(limit).await?;
    ensure_eq!(again, SweepReport::default(), "a sweep with nothing to do");
    Ok(())
}

/// Checks that each record is stored as its oracle expects.
async fn ensure_kept<B: Backend>(stage: &Stage<B>, population: &Population) -> Verdict {
    for run in &population.runs {
        let seen = stage.store.get(&run.oracle.id).await?;
        let expected = run.oracle.stored.as_ref();
        if !same_stored(seen.as_ref(), expected, stage.setting.slack) {
            return Err(Deviation::new(format!(
                "{}\n      kept: {seen:?}\n  expected: {expected:?}",
                run.name
            )));
        }
    }
    Ok(())
}

/// Removes what no sweep may remove, for the next round to find its keys free.
async fn clear<B: Backend>(stage: &Stage<B>, population: &Population) -> Verdict {
    for run in &population.runs {
        let Some(fence) = run.oracle.entry().map(justonce_core::Entry::fence) else {
            continue;
        };
        let release = justonce_core::Step::new(run.oracle.id, Action::Release(fence));
        let answer = stage.store.apply(&release).await?;
        ensure_eq!(answer, Answer::Applied, "a release of {}", run.name);
        let sweep = justonce_core::Step::new(run.oracle.id, Action::Sweep);
        let answer = stage.store.apply(&sweep).await?;
        let kept = Answer::Swept(SweepDone::Kept);
        ensure_eq!(answer, kept, "a sweep of what is gone or waits for its next attempt");
    }
    // What had earlier attempts is kept for its retention.
    stage.advance(stage.setting.much_later).await?;
    stage.store.sweep(usize::MAX).await?;
    let stats = stage.store.stats().await?;
    ensure_eq!(stats, justonce_core::store::Stats::default(), "an empty store");
    Ok(())
}
