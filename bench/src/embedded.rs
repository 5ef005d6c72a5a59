//! The engine on the embedded store, beside the raw engine and SQLite.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use justonce::engine::Begun;
use justonce::store::SharedStore;
use justonce::{
    EmbeddedStore, Engine, Key, OnLapsed, Operation, Outcome, Policy, Ran, Scope, StateName,
};

use crate::floor::{Sizes, raw};
use crate::load::{Candidate, candidate, in_turn, runtime};
use crate::report::{Report, median};
use crate::sqlite::sqlite;

/// How many callers at once.
const CALLERS: u64 = 32;
/// The outcome of one operation, in bytes.
const OUTCOME_BYTES: usize = 500;
/// How many operations the duplicates are of.
const DUPLICATE_KEYS: u64 = 10_000;

pub(crate) fn measure(report: &mut Report, slices: u64, time: Duration) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name);
    let runtime = runtime()?;
    let rates = runtime.block_on(async {
        let sizes = sizes(&path("sizes")).await?;
        println!("  an operation under `hold` writes {sizes:?} bytes");
        std::fs::create_dir(path("sqlite"))?;
        let candidates = [
            operations(&path("hold"), OnLapsed::Hold)?,
            raw(&path("raw"), CALLERS, sizes)?,
            operations(&path("rerun"), OnLapsed::Rerun)?,
            sqlite(&path("sqlite"), CALLERS, sizes)?,
            duplicates(&path("duplicates")).await?,
        ];
        in_turn(&candidates, slices, time).await
    })?;
    let [hold, raw, rerun, sqlite, duplicates] = <[Vec<f64>; 5]>::try_from(rates)
        .map_err(|_| anyhow::anyhow!("five candidates have five rates"))?
        .map(median);
    println!(
        "  medians: hold {hold:.0}/s, raw {raw:.0}/s, rerun {rerun:.0}/s, SQLite {sqlite:.0}/s"
    );
    ratios(report, hold, raw, rerun, sqlite);
    report.add(
        "duplicates on embedded, both cores",
        format!("{:.0} k/s", duplicates / 1000.0),
        "≥ 400 k/s",
        duplicates >= 400_000.0,
    );
    Ok(())
}

fn ratios(report: &mut Report, hold: f64, raw: f64, rerun: f64, sqlite: f64) {
    for (what, ratio, least) in [
        ("engine on embedded, `hold`, to the raw engine with the same bytes", hold / raw, 0.85),
        ("the same, to SQLite (WAL, synchronous=FULL, batched)", hold / sqlite, 2.0),
        ("`rerun` to `hold`", rerun / hold, 1.5),
    ] {
        report.add(what, format!("{ratio:.2} ×"), &format!("≥ {least} ×"), ratio >= least);
    }
}

fn scope() -> Result<Scope> {
    Ok(Scope::builder().tenant("acme").operation("charge").build()?)
}

fn policy(on_lapsed: OnLapsed) -> Result<Arc<Policy>> {
    Ok(Arc::new(Policy::builder().on_lapsed(on_lapsed).build()?))
}

/// What the store writes for one operation.
async fn sizes(path: &Path) -> Result<Sizes> {
    let store: SharedStore = Arc::new(EmbeddedStore::open(path)?);
    let engine = Engine::builder_shared(Arc::clone(&store)).build();
    let operation = Operation::without_fingerprint(scope()?, Key::client("order-0-0000")?)
        .with_policy(policy(OnLapsed::Hold)?);
    let Begun::Claimed(mut claim) = engine.begin(&operation).await? else {
        anyhow::bail!("a new operation must be claimed");
    };
    let bytes = |stats: justonce::store::Stats, state| {
        stats.of(state).map_or(0, |s| usize::try_from(s.bytes).unwrap_or(0))
    };
    let claimed = bytes(store.stats().await?, StateName::InProgress);
    let _ = claim.complete(Outcome::bytes(vec![b'x'; OUTCOME_BYTES])).await?;
    let completed = bytes(store.stats().await?, StateName::Completed);
    Ok(Sizes { claim: claimed, outcome: completed })
}

/// First-time operations.
fn operations(path: &Path, on_lapsed: OnLapsed) -> Result<Candidate> {
    let engine = Engine::new(EmbeddedStore::open(path)?);
    let (scope, policy) = (scope()?, policy(on_lapsed)?);
    let outcome = Outcome::bytes(vec![b'x'; OUTCOME_BYTES]);
    Ok(candidate(CALLERS, move |caller, number| {
        let (engine, scope) = (engine.clone(), scope.clone());
        let (policy, outcome) = (Arc::clone(&policy), outcome.clone());
        async move {
            let key = Key::client(format!("order-{caller}-{number}"))?;
            let operation = Operation::without_fingerprint(scope, key).with_policy(policy);
            let ran = engine.run(&operation, async |_| Ok(outcome)).await?;
            ensure!(matches!(ran, Ran::Executed(_)), "it must execute");
            Ok(())
        }
    }))
}

/// Duplicates.
async fn duplicates(path: &Path) -> Result<Candidate> {
    let engine = Engine::new(EmbeddedStore::open(path)?);
    let scope = scope()?;
    let policy = policy(OnLapsed::Rerun)?;
    let operations: Arc<Vec<Operation>> = Arc::new(
        (0..DUPLICATE_KEYS)
            .map(|n| {
                let key = Key::client(format!("order-{n}"))?;
                let operation = Operation::without_fingerprint(scope.clone(), key);
                Ok(operation.with_policy(Arc::clone(&policy)))
            })
            .collect::<Result<_>>()?,
    );
    let outcome = Outcome::bytes(vec![b'x'; OUTCOME_BYTES]);
    let fill: Vec<_> = operations
        .iter()
        .map(|operation| {
            let outcome = outcome.clone();
            engine.run_detached(operation.clone(), async move |_| Ok(outcome))
        })
        .collect();
    for done in fill {
        done.await?;
    }
    Ok(candidate(CALLERS, move |caller, number| {
        let (engine, operations) = (engine.clone(), Arc::clone(&operations));
        async move {
            let at = usize::try_from((caller * 7919 + number) % DUPLICATE_KEYS)?;
            if let Some(operation) = operations.get(at) {
                let ran = engine.run(operation, async |_| Ok(Outcome::empty())).await?;
                ensure!(matches!(ran, Ran::Replayed(_)), "it must replay");
            }
            Ok(())
        }
    }))
}
