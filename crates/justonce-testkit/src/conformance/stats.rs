//! Chapter: the figures of a store are those of its records.

use std::sync::Arc;

use justonce_core::store::{Maintenance, Stats};
use justonce_core::{Entry, StateName};

use super::backend::Backend;
use super::deviation::{Verdict, ensure, ensure_eq};
use super::population::Population;
use super::runner::Stage;

/// Counts and bytes by state are those of the stored records: in an empty store, with records in
/// all states, and after a sweep.
///
/// # Errors
///
/// If a figure is wrong.
pub async fn stats<B: Backend>(backend: B) -> Verdict {
    let stage = Arc::new(Stage::new(backend)?);
    stage.store.ready().await?;
    let empty = stage.store.stats().await?;
    ensure_eq!(empty, Stats::default(), "the figures of an empty store");
    let mut population = Population::settle(&stage, 3).await?;
    ensure_counts(&stage.store.stats().await?, &stored(&population))?;
    super::sweep::sweep_all(&stage, &mut population, usize::MAX).await?;
    ensure_counts(&stage.store.stats().await?, &stored(&population))
}

fn stored(population: &Population) -> Vec<StateName> {
    let entries = population.runs.iter().filter_map(|run| run.oracle.entry());
    entries.map(Entry::state_name).collect()
}

/// Compares figures with the states of all stored records.
pub(super) fn ensure_counts(stats: &Stats, stored: &[StateName]) -> Verdict {
    for state in StateName::ALL {
        let Some(figures) = stats.of(state) else {
            continue;
        };
        let expected = stored.iter().filter(|one| **one == state).count() as u64;
        ensure_eq!(
            figures.count,
            expected,
            "the number of records that are {state}"
        );
        ensure!(
            (figures.bytes > 0) == (expected > 0),
            "{} records that are {state} take {} bytes",
            figures.count,
            figures.bytes
        );
    }
    Ok(())
}
