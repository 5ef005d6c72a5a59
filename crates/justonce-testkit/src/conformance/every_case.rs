//! Chapter: every (state × event × time relation × policy) does what the pure function says.

use std::sync::Arc;

use super::backend::Backend;
use super::cases;
use super::deviation::Verdict;
use super::runner::{Stage, collect, play};

/// Drives every case through the store and compares each answer, each stored record and each
/// timeline with what the pure function says.
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
