//! Sagas on the embedded store, beside what its durable commits allow for them.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use justonce::EmbeddedStore;

use super::ours::{bare_commits, commits, sagas, sizes};
use super::run::SagaArgs;
use crate::load::{in_turn, runtime};
use crate::report::{Report, median};

/// The most durable commits that a saga of three steps may cost.
const MOST_COMMITS: u64 = 4;

pub(super) fn measure(args: &SagaArgs, directory: &Path, report: &mut Report) -> Result<()> {
    let path = |name: &str| directory.join(name);
    let runtime = runtime()?;
    let (count, rates) = runtime.block_on(async {
        let count = commits(&path("commits")).await?;
        let sizes = sizes(&path("sizes")).await?;
        println!("  the record of a saga has, after each commit, {sizes:?} bytes");
        let candidates = [
            sagas(Arc::new(EmbeddedStore::open(path("sagas"))?))?,
            bare_commits(Arc::new(EmbeddedStore::open(path("bare"))?), sizes)?,
        ];
        anyhow::Ok((count, in_turn(&candidates, args.rounds, args.time()).await?))
    })?;
    let [ours, bare] = <[Vec<f64>; 2]>::try_from(rates)
        .map_err(|_| anyhow::anyhow!("two candidates have two rates"))?
        .map(median);
    let wanted = format!("≤ {MOST_COMMITS}");
    let what = "a saga of three steps on embedded: durable commits";
    report.add(what, count.to_string(), &wanted, count <= MOST_COMMITS);
    let what = "sagas on embedded to as many durable commits of the store, of the same bytes";
    super::run::add(report, what, ours, bare, 0.7);
    Ok(())
}
