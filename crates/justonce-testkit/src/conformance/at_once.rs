//! Chapter: cases without waiting match the pure function also where steps go in batches.

use std::sync::Arc;

use super::backend::Backend;
use super::cases;
use super::crowd::Counted;
use super::deviation::Verdict;
use super::runner::{Stage, collect, play};

/// Drives every case in which no time passes through the store, all at once, and compares as
/// [`every_case`](super::every_case) does. For stores on a clock that runs by itself.
///
/// # Errors
///
/// With the first cases in which the store deviates, and if a store with batches sends none.
pub async fn at_once<B: Backend>(backend: B) -> Verdict {
    let stage = Arc::new(Stage::new(backend)?);
    let counted = Counted::new(&stage);
    let start = stage.backend.now().await?;
    let runs = cases::immediate(&stage.setting, start)?;
    let runs = play(&stage, runs).await?;
    let coverage = collect(&runs)?;
    counted.ensure_batched("the steps of all cases")?;
    println!("{} cases, {} steps compared", runs.len(), coverage.steps);
    Ok(())
}
