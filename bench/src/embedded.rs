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
use crate::load::{rate, runtime};
use crate::report::{Report, median};
use crate::sqlite::sqlite;

/// How many callers at once.
const CALLERS: u64 = 32;
/// The outcome of one operation, in bytes.
const OUTCOME_BYTES: usize = 500;
/// How many operations the duplicates are of.
const DUPLICATE_KEYS: u64 = 10_000;

/// One round of everything, so that all see the same mood of the machine.
#[derive(Debug, Default)]
struct Rounds {
    to_raw: Vec<f64>,
    to_sqlite: Vec<f64>,
    rerun_to_hold: Vec<f64>,
    duplicates: Vec<f64>,
}

pub(crate) fn measure(report: &mut Report, rounds: usize, time: Duration) -> Result<()> {
    let runtime = runtime()?;
    let mut all = Rounds::default();
    for round in 1..=rounds {
        runtime.block_on(one_round(round, time, &mut all))?;
    }
    let ratio = |value: f64| format!("{value:.2} ×");
    let raw = median(all.to_raw);
    report.add(
        "engine on embedded, `hold`, 32 callers, to the raw engine with the same bytes",
        ratio(raw),
        "≥ 0.85 ×",
        raw >= 0.85,
    );
    let sqlite = median(all.to_sqlite);
    report.add(
        "the same, to SQLite (WAL, synchronous=FULL, batched)",
        ratio(sqlite),
        "≥ 2 ×",
        sqlite >= 2.0,
    );
    let rerun = median(all.rerun_to_hold);
    report.add("`rerun` to `hold`", ratio(rerun), "≥ 1.5 ×", rerun >= 1.5);
    let duplicates = median(all.duplicates);
    report.add(
        "duplicates on embedded, both cores",
        format!("{:.0} k/s", duplicates / 1000.0),
        "≥ 400 k/s",
        duplicates >= 400_000.0,
    );
    Ok(())
}

async fn one_round(round: usize, time: Duration, all: &mut Rounds) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name);
    let sizes = sizes(&path("sizes")).await?;
    std::fs::create_dir(path("sqlite"))?;
    let hold = operations(&path("hold"), OnLapsed::Hold, time).await?;
    let floor = raw(&path("raw"), CALLERS, time, sizes).await?;
    let rerun = operations(&path("rerun"), OnLapsed::Rerun, time).await?;
    let peer = sqlite(&path("sqlite"), CALLERS, time, sizes).await?;
    let duplicates = duplicates(&path("duplicates"), time).await?;
    println!(
        "  round {round}: hold {hold:.0}/s, rerun {rerun:.0}/s, raw {floor:.0}/s, \
         SQLite {peer:.0}/s, duplicates {duplicates:.0}/s (bytes: {sizes:?})"
    );
    all.to_raw.push(hold / floor);
    all.to_sqlite.push(hold / peer);
    all.rerun_to_hold.push(rerun / hold);
    all.duplicates.push(duplicates);
    Ok(())
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
    let operation =
        Operation::new(scope()?, Key::client("order-0-0000")?).with_policy(policy(OnLapsed::Hold)?);
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

/// First-time operations per second.
async fn operations(path: &Path, on_lapsed: OnLapsed, time: Duration) -> Result<f64> {
    let engine = Engine::new(EmbeddedStore::open(path)?);
    let (scope, policy) = (scope()?, policy(on_lapsed)?);
    let outcome = Outcome::bytes(vec![b'x'; OUTCOME_BYTES]);
    rate(CALLERS, time, move |caller, number| {
        let (engine, scope) = (engine.clone(), scope.clone());
        let (policy, outcome) = (Arc::clone(&policy), outcome.clone());
        async move {
            let key = Key::client(format!("order-{caller}-{number}"))?;
            let operation = Operation::new(scope, key).with_policy(policy);
            let ran = engine.run(&operation, async |_| Ok(outcome)).await?;
            ensure!(matches!(ran, Ran::Executed(_)), "it must execute");
            Ok(())
        }
    })
    .await
}

/// Duplicates per second.
async fn duplicates(path: &Path, time: Duration) -> Result<f64> {
    let engine = Engine::new(EmbeddedStore::open(path)?);
    let scope = scope()?;
    let operations: Arc<Vec<Operation>> = Arc::new(
        (0..DUPLICATE_KEYS)
            .map(|n| Ok(Operation::new(scope.clone(), Key::client(format!("order-{n}"))?)))
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
    rate(CALLERS, time, move |caller, number| {
        let (engine, operations) = (engine.clone(), Arc::clone(&operations));
        async move {
            let at = usize::try_from((caller * 7919 + number) % DUPLICATE_KEYS)?;
            if let Some(operation) = operations.get(at) {
                let ran = engine.run(operation, async |_| Ok(Outcome::empty())).await?;
                ensure!(matches!(ran, Ran::Replayed(_)), "it must replay");
            }
            Ok(())
        }
    })
    .await
}
