//! Chapter: every (state × event × time relation × policy) matches the pure function.

use std::sync::Arc;

use super::backend::Backend;
use super::cases;
use super::deviation::Verdict;
use super::runner::{Stage, collect, play};

/// Drives every case through the store and compares each answer, each stored record and each
/// timeline with those of the pure function.
///
/// # Errors
///
/// With the first cases in which the store deviates.
pub async fn every_case<B: Backend>(backend: B) -> Verdict {
    let stage = Arc::new(Stage::new(backend)?);
    let start = stage.backend.now().await?;
    let runs = cases::all(&stage.setting, start)?;
    let runs = play(&stage, runs).await?;
    let coverage = collect(&runs)?;
    coverage.ensure_complete()?;
    println!("{} cases, {} steps compared", runs.len(), coverage.steps);
    Ok(())
}
